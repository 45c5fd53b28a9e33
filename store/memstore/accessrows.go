package memstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// AllAccess implements [svc.AccessStore].
func (s *Store) AllAccess(ctx context.Context) (svc.AccessRows, error) {
	if err := s.lock(ctx); err != nil {
		return svc.AccessRows{}, err
	}
	defer s.mu.Unlock()
	return svc.AccessRows{Generation: s.generation, Bundle: svc.Bundle{
		Users:           sorted(s.users, strings.Compare, cloneUser),
		Groups:          sorted(s.groups, strings.Compare, cloneGroup),
		ServiceAccounts: sorted(s.serviceAccounts, strings.Compare, same),
		Policies:        sorted(s.policies, strings.Compare, clonePolicy),
		Attachments:     sorted(s.attachments, svc.AttachmentKey.Compare, same),
		BankPolicies:    sorted(s.bankPolicies, strings.Compare, cloneBankPolicy),
	}}, nil
}

// sorted returns copies of all rows, sorted by key.
func sorted[K comparable, R any](rows map[K]R, compare func(a, b K) int, clone func(R) R) []R {
	list := make([]R, 0, len(rows))
	for _, key := range slices.SortedFunc(maps.Keys(rows), compare) {
		list = append(list, clone(rows[key]))
	}
	return list
}
