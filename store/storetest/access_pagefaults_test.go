//go:build planted

package storetest

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

var accessPageFaults = map[string]func(*store){
	"Page is ignored": readFault(func(read *svc.AccessRead) { read.Page = nil }),
	"a page of users has channels": pagePartFault(func(page svc.AccessPage, part *svc.Bundle) {
		for i := range part.Users {
			if page.Kind == svc.TargetUser {
				part.Users[i].Channels = []svc.Channel{}
			}
		}
	}),
}

// largePageFaults break rules that -short skips.
var largePageFaults = map[string]func(*store){
	"a page is one part": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			if read.Page == nil {
				return s.FullStore.ReadAccess(ctx, read, yield)
			}
			var whole svc.Bundle
			changes, err := s.FullStore.ReadAccess(ctx, read, collect(&whole))
			if err != nil || whole.Empty() {
				return changes, err
			}
			return changes, yield(whole)
		}
	},
	"a text finds only the next thousand users": func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			if read.Page == nil || read.Page.Text == "" {
				return s.FullStore.ReadAccess(ctx, read, yield)
			}
			next := svc.AccessPage{Kind: svc.TargetUser, After: read.Page.After, Limit: 1000}
			var near svc.Bundle
			if _, err := s.FullStore.ReadAccess(ctx, svc.AccessRead{Page: &next}, collect(&near)); err != nil {
				return svc.StoreChanges{}, err
			}
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				part.Users = slices.DeleteFunc(part.Users, func(u svc.User) bool {
					return !slices.ContainsFunc(near.Users, func(n svc.User) bool { return n.ID == u.ID })
				})
				return yield(part)
			})
		}
	},
}

// pagePartFault returns a fault in the parts of a page.
func pagePartFault(fault func(svc.AccessPage, *svc.Bundle)) func(*store) {
	return func(s *store) {
		s.readAccess = func(ctx context.Context, read svc.AccessRead, yield yield) (svc.StoreChanges, error) {
			return s.FullStore.ReadAccess(ctx, read, func(part svc.Bundle) error {
				if read.Page != nil {
					fault(*read.Page, &part)
				}
				return yield(part)
			})
		}
	}
}
