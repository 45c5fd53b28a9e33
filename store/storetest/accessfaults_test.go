package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

var accessFaults = map[string]func(*store){
	"a service account is found as a user": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			if query.Identity.Kind == svc.KindUser && isServiceAccount(ctx, s, query.Identity.ID) {
				snapshot.User = &svc.User{ID: query.Identity.ID}
			}
			return snapshot, err
		}
	},
	"a service account is always active": snapshotFault(func(_ svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.ServiceAccount != nil {
			snapshot.ServiceAccount.Inactive = false
		}
		return nil
	}),
	"a user is always active": snapshotFault(func(_ svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.User != nil {
			snapshot.User.Inactive = false
		}
		return nil
	}),
	"an unknown user is an error": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if query.Identity.Kind == svc.KindUser && snapshot.User == nil {
			return svc.ErrNotFound
		}
		return nil
	}),
	"a service account without a policy has an empty one": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.ServiceAccount != nil && snapshot.Scoping == nil {
			snapshot.Scoping = &svc.Policy{}
		}
		return nil
	}),
	"attachments of groups are lost": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		snapshot.Grants = slices.DeleteFunc(snapshot.Grants, func(g svc.Grant) bool { return g.Principal.Type == svc.GrantedToGroup })
		return nil
	}),
	"groups without attachments are lost": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		snapshot.Groups = slices.DeleteFunc(snapshot.Groups, func(id string) bool {
			return !slices.ContainsFunc(snapshot.Grants, func(g svc.Grant) bool { return g.Principal == svc.GrantedTo{Type: svc.GrantedToGroup, ID: id} })
		})
		return nil
	}),
	"a policy that is attached twice gives one grant": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		seen := map[string]bool{}
		snapshot.Grants = slices.DeleteFunc(snapshot.Grants, func(g svc.Grant) bool {
			defer func() { seen[g.ID] = true }()
			return seen[g.ID]
		})
		return nil
	}),
	"inactive users are hidden": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.User != nil && snapshot.User.Inactive {
			snapshot.User = nil
		}
		return nil
	}),
	"a priority has 32 bits": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		for i := range snapshot.Grants {
			snapshot.Grants[i].Priority = int64(int32(snapshot.Grants[i].Priority))
		}
		return nil
	}),
	"a bank's policy is read only when the user exists": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.User == nil {
			snapshot.BankPolicy = nil
		}
		return nil
	}),
	"the narrowing policy of a key is left out": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if query.KeyID != "" {
			snapshot.Narrowing = nil
		}
		return nil
	}),
	"a service account's own scoping policy replaces the narrowing policy": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.Narrowing != nil && snapshot.Scoping != nil {
			snapshot.Narrowing = snapshot.Scoping
		}
		return nil
	}),
	"a deleted narrowing policy is read as an empty one": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if query.ScopingPolicyID != "" && snapshot.Narrowing == nil {
			snapshot.Narrowing = &svc.Policy{ID: query.ScopingPolicyID}
		}
		return nil
	}),
	"a key is left out": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		snapshot.Key = nil
		return nil
	}),
	"a revoked key has no holder": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.Key != nil && !snapshot.Key.RevokedAt.IsZero() {
			snapshot.User, snapshot.ServiceAccount, snapshot.Grants, snapshot.Scoping = nil, nil, nil, nil
		}
		return nil
	}),
	"a key whose holder has no row is unknown": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if snapshot.User == nil {
			snapshot.Key = nil
		}
		return nil
	}),
	"the holder of a key is the user with that id": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			of, err := s.FullStore.Access(ctx, query)
			if err != nil || of.Key == nil {
				return of, err
			}
			snapshot, err := s.FullStore.Access(ctx, svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: of.Key.Holder.ID}, BankID: query.BankID})
			snapshot.Key = of.Key
			return snapshot, err
		}
	},
	"names of policies lose characters that do not print": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		for i, grant := range snapshot.Grants {
			snapshot.Grants[i].DisplayName = strings.Trim(grant.DisplayName, "\x1e\x1f")
		}
		return nil
	}),
	"a channel is found by its sender": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			if query.Channel.Provider == "Chat" {
				query.Channel.Provider = "chat"
			}
			return s.FullStore.Access(ctx, query)
		}
	},
	"a user and a service account with one id are confused": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			if query.Identity.Kind == svc.KindUser && isServiceAccount(ctx, s, query.Identity.ID) {
				query.Identity.Kind = svc.KindServiceAccount
			}
			return s.FullStore.Access(ctx, query)
		}
	},
	"a group is a user": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			if query.Identity.ID == "x" {
				snapshot.Grants = append(snapshot.Grants, svc.Grant{Policy: newPolicy("group's"), Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: "x"}})
			}
			return snapshot, err
		}
	},
	"a snapshot is read in two steps": func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			first, err := s.FullStore.Access(ctx, query)
			if err != nil {
				return first, err
			}
			time.Sleep(time.Millisecond)
			then, err := s.FullStore.Access(ctx, query)
			first.BankPolicy, first.Generation = then.BankPolicy, then.Generation
			return first, err
		}
		s.changeAccess = func(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
			time.Sleep(time.Millisecond)
			return s.FullStore.ChangeAccess(ctx, named, change)
		}
	},
}

func isServiceAccount(ctx context.Context, s *store, id string) bool {
	snapshot, err := s.FullStore.Access(ctx, svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindServiceAccount, ID: id}})
	return err == nil && snapshot.ServiceAccount != nil
}

func snapshotFault(fault func(svc.AccessQuery, *svc.AccessSnapshot) error) func(*store) {
	return func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			return snapshot, cmp.Or(err, fault(query, &snapshot))
		}
	}
}
