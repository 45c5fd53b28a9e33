package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

var accessRowsFaults = map[string]func(*store){
	"all rows are sorted without regard to case": allAccessFault(func(rows *svc.AccessRows) {
		slices.SortFunc(rows.Users, func(a, b svc.User) int { return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)) })
	}),
	"all attachments are sorted by principal": allAccessFault(func(rows *svc.AccessRows) {
		slices.SortFunc(rows.Attachments, func(a, b svc.Attachment) int {
			return strings.Compare(a.Principal.Type+a.Principal.ID, b.Principal.Type+b.Principal.ID)
		})
	}),
	"empty lists of rows are nil": allAccessFault(func(rows *svc.AccessRows) {
		if len(rows.Policies) == 0 {
			rows.Policies = nil
		}
	}),
	"users without channels have a nil list": allAccessFault(func(rows *svc.AccessRows) {
		for i, user := range rows.Users {
			if len(user.Channels) == 0 {
				rows.Users[i].Channels = nil
			}
		}
	}),
	"all rows are read table by table": func(s *store) {
		s.allAccess = func(ctx context.Context) (svc.AccessRows, error) {
			rows, err := s.FullStore.AllAccess(ctx)
			if err != nil {
				return rows, err
			}
			time.Sleep(time.Millisecond)
			then, err := s.FullStore.AllAccess(ctx)
			rows.BankPolicies = then.BankPolicies
			return rows, err
		}
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.Bundle, error)) error {
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	},
}

func allAccessFault(fault func(*svc.AccessRows)) func(*store) {
	return func(s *store) {
		s.allAccess = func(ctx context.Context) (svc.AccessRows, error) {
			rows, err := s.FullStore.AllAccess(ctx)
			fault(&rows)
			return rows, err
		}
	}
}
