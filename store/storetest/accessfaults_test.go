//go:build planted

package storetest

import (
	"cmp"
	"context"
	"slices"

	"github.com/extsvc/svc"
)

var accessFaults = map[string]func(*store){
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
	"a deleted narrowing policy is read as an empty one": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		if query.ScopingPolicyID != "" && snapshot.Narrowing == nil {
			snapshot.Narrowing = &svc.Policy{ID: query.ScopingPolicyID}
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
	"each grant has a document of its own": snapshotFault(func(query svc.AccessQuery, snapshot *svc.AccessSnapshot) error {
		for i, grant := range snapshot.Grants {
			snapshot.Grants[i].Document = slices.Clone(grant.Document)
		}
		return nil
	}),
}

func snapshotFault(fault func(svc.AccessQuery, *svc.AccessSnapshot) error) func(*store) {
	return func(s *store) {
		s.access = func(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
			snapshot, err := s.FullStore.Access(ctx, query)
			return snapshot, cmp.Or(err, fault(query, &snapshot))
		}
	}
}
