package svc

import (
	"context"
	"errors"

	"github.com/extsvc/svc/internal/policy"
)

// AccessDiff is what differs in what everybody may do. All its lists are nil where there is nothing to tell.
//
// It is exact: where an answer of [Service.Decide] differs (whether it allows, its parameters, its strategy), it is told here, and what is
// told of principals and of the public does differ. That a denial is another denial does not count, though only one for want of an
// allow gives way to what a host vouches for. A bank whose own policy does not parse counts as denied, unless its id ends in an asterisk.
type AccessDiff struct {
	Principals []PrincipalsDiff // by the first principal: users before service accounts, then by id
	Public     []PublicDiff     // by bank, then context
	Strategies []StrategyDiff   // likewise
}

// PrincipalsDiff is what differs for principals whose policies are equal, before and after. Any of them is a witness.
type PrincipalsDiff struct {
	Principals  []Identity // sorted
	Differences []Difference
}

type (
	// Difference is how the answer to some requests changes: to those that its patterns cover and that no closer one of its list
	// covers, as with a [Capability]. What none covers is unchanged. Its patterns, read as strings, are a witness: a request whose
	// answer changes so.
	Difference = policy.Difference
	// Change is the kind of a [Difference].
	Change = policy.Change
	// PublicDiff is what differs for unmapped senders on one bank. Its Context is a witness for all that differ from it only in
	// values that no override names, or that are not looked at because a more specific override is in force.
	PublicDiff = policy.PublicDiff
	// StrategyDiff is a bank's own strategy that differs, for whoever is allowed and has none of its own. Its Context is a witness
	// as in a PublicDiff.
	StrategyDiff = policy.StrategyDiff
)

// The changes.
const (
	NewlyAllowed    = policy.NewlyAllowed
	NewlyDenied     = policy.NewlyDenied
	OtherParameters = policy.OtherParameters // allowed before and after
	Unchanged       = policy.Unchanged       // an exception: a closer pattern that does not change
)

// Diff compares what everybody may do by two bundles, each of which is all that there is. A principal that is in one of them alone is
// denied everything by the other. Errors: CodeInvalid and CodeExists, joined: what [Service.Apply] would say about the bundle, in Field
// the JSON pointer behind "/before" or "/after".
func Diff(before, after Bundle) (AccessDiff, error) {
	compiler := policy.NewCompiler()
	b, beforeErr := alone(compiler, before)
	a, afterErr := alone(compiler, after)
	if err := errors.Join(under("/before", beforeErr), under("/after", afterErr)); err != nil {
		return AccessDiff{}, err
	}
	return diff(compiler, b, a), nil
}

// PreviewApply returns what [Service.Apply] of a bundle would change in what everybody may do, and writes nothing. by needs
// [ActionUsersRead]. Errors: CodeForbidden, CodeUnavailable, and those of Apply about the bundle.
func (s *Service) PreviewApply(ctx context.Context, by Principal, bundle Bundle) (AccessDiff, error) {
	bundle, err := bundle.normalize(s.compiler)
	if err != nil {
		return AccessDiff{}, err
	}
	before, after, _, err := s.overlaid(ctx, by, bundle)
	if err != nil {
		return AccessDiff{}, err
	}
	return diff(s.compiler, before, after), nil
}

// alone returns the rows of a bundle that is all there is.
func alone(compiler *policy.Compiler, b Bundle) (*roster, error) {
	b, err := b.normalize(compiler)
	if err != nil {
		return nil, err
	}
	r, _, err := newRoster(AccessRows{}).with(b)
	return r, err
}

// under puts a prefix before the pointers of errors.
func under(prefix string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, under(prefix, one))
		}
		return errors.Join(all...)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		moved := *e
		moved.Field = prefix + e.Field
		return &moved
	}
	return err
}

func diff(compiler *policy.Compiler, before, after *roster) AccessDiff {
	found := compiler.Diff(before.census(), after.census())
	d := AccessDiff{Public: found.Public, Strategies: found.Strategies}
	for _, p := range found.Parties {
		one := PrincipalsDiff{Differences: p.Differences}
		for _, m := range p.Members {
			one.Principals = append(one.Principals, Identity{Kind: Kind(m.Kind), ID: m.ID})
		}
		d.Principals = append(d.Principals, one)
	}
	return d
}
