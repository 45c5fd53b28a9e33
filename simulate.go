package svc

import (
	"context"
	"errors"
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// MaxSimulatedStatements is how many statements may reach the subject of [Service.Simulate], each counting as often as there are ways in
// which it does: the trace has an element for each.
const MaxSimulatedStatements = 20_000

// Simulate answers a query as [Service.Resolve] would once a bundle were applied, and writes nothing. Where the bundle would change
// something, the Revision is none of the store's. by needs [ActionUsersRead]. The rows of the bundle are not looked at before by is
// authorized.
//
// Errors: those of Resolve, those of [Service.Apply] about the bundle, and CodeInvalid where more than [MaxSimulatedStatements] reach the
// subject.
func (s *Service) Simulate(ctx context.Context, by Principal, overlay Bundle, q Query) (Resolution, error) {
	asked, wrong := q.check()
	compiler := s.compiler.Apart(ctx)
	_, after, changed, err := s.overlaid(ctx, by, compiler, overlay, wrong)
	if err != nil {
		return Resolution{}, err
	}
	if err := ctx.Err(); err != nil {
		return Resolution{}, fault("simulate", err)
	}
	r, err := resolve(compiler, after.snapshot(asked), asked, q, MaxSimulatedStatements)
	if err != nil {
		return Resolution{}, err
	}
	r.BankPolicy = slices.Clone(r.BankPolicy)
	if changed {
		r.Revision += "+simulated"
	}
	return r, nil
}

// overlaid returns all rows of access as they are, and as a bundle would leave them, to a caller who may read them. wrong is what the form
// of the request has shown to be wrong with it; nil: nothing.
func (s *Service) overlaid(ctx context.Context, by Principal, compiler *policy.Compiler, overlay Bundle, wrong error) (before, after *roster, changed bool, err error) {
	if err := s.authorize(ctx, by, ActionUsersRead); err != nil {
		if wrong != nil {
			return nil, nil, false, wrong
		}
		return nil, nil, false, err
	}
	overlay, err = overlay.normalize(compiler)
	if err := errors.Join(wrong, err); err != nil {
		return nil, nil, false, err
	}
	all, err := s.everybody(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	after, changed, err = all.with(overlay)
	return all.roster, after, changed, err
}
