package svc

import (
	"context"
	"errors"
	"slices"
)

// Simulate answers a query as [Service.Resolve] would once a bundle were applied, and writes nothing. Where the bundle would change
// something, the Revision is none of the store's. by needs [ActionUsersRead].
//
// Errors: those of Resolve, and those of [Service.Apply] about the bundle.
func (s *Service) Simulate(ctx context.Context, by Principal, overlay Bundle, q Query) (Resolution, error) {
	asked, queryErr := q.check()
	overlay, err := overlay.normalize(s.compiler)
	if err := errors.Join(queryErr, err); err != nil {
		return Resolution{}, err
	}
	_, after, changed, err := s.overlaid(ctx, by, overlay)
	if err != nil {
		return Resolution{}, err
	}
	r := s.resolve(after.snapshot(asked), asked, q)
	r.BankPolicy = slices.Clone(r.BankPolicy)
	if changed {
		r.Revision += "+simulated"
	}
	return r, nil
}

// overlaid returns all rows of access as they are, and as a normal bundle would leave them.
func (s *Service) overlaid(ctx context.Context, by Principal, overlay Bundle) (before, after *roster, changed bool, err error) {
	if err := s.authorize(ctx, by, ActionUsersRead); err != nil {
		return nil, nil, false, err
	}
	all, err := s.everybody(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	after, changed, err = all.with(overlay)
	return all.roster, after, changed, err
}
