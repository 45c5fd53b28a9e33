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

// Difference tells how the answer to some requests changes: to those that its patterns cover and that no closer element
// of its list covers, as with a [Capability]. The answer to all other requests is unchanged. Its patterns, read as
// strings, are a witness: a request whose answer changes in this way.
type Difference struct {
	Action, Bank  string // patterns
	Change        ChangeKind
	Before, After Parameters // zero where denied or unchanged; the elements of a list share what they point to
}

// ChangeKind is the kind of a [Difference].
type ChangeKind string

// The kinds of changes.
const (
	NewlyAllowed    ChangeKind = "newly_allowed"
	NewlyDenied     ChangeKind = "newly_denied"
	OtherParameters ChangeKind = "other_parameters" // allowed before and after
	Unchanged       ChangeKind = "unchanged"        // an exception: a closer pattern that does not change
)

// PublicDiff is what differs for unmapped senders on one bank. Its Context is a witness. It stands for all contexts that
// differ from it only in values that no override names, or in values that a more specific override hides.
type PublicDiff struct {
	Bank        string
	Context     Context
	Differences []Difference // their Bank is this one
}

// StrategyDiff is a change of a bank's own strategy, for principals that are allowed and have no strategy of their own.
type StrategyDiff struct {
	Bank          string
	Context       Context // a witness, as in a [PublicDiff]
	Before, After *string // nil: no strategy
}

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
	return diff(nil, compiler, b, a), nil
}

// PreviewApply returns what [Service.Apply] of a bundle would change in what everybody may do, and writes nothing. by needs
// [ActionUsersRead]. As [Service.WhatCan] does, it takes seconds where a policy has thousands of action patterns and of bank patterns. It ends
// with ctx. Errors: CodeForbidden, CodeUnavailable, and those of Apply about the bundle.
func (s *Service) PreviewApply(ctx context.Context, by Principal, bundle Bundle) (AccessDiff, error) {
	compiler := s.compiler.Apart(ctx)
	before, after, _, err := s.overlaid(ctx, by, compiler, bundle, nil)
	if err != nil {
		return AccessDiff{}, err
	}
	found := diff(ctx, compiler, before, after)
	if err := ctx.Err(); err != nil {
		return AccessDiff{}, fault("compare access", err)
	}
	return found, nil
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

func diff(call policy.Call, compiler *policy.Compiler, before, after *roster) AccessDiff {
	found := compiler.Diff(before.census(call), after.census(call))
	var d AccessDiff
	for _, p := range found.Parties {
		one := PrincipalsDiff{Differences: accessDifferences(p.Differences)}
		for _, m := range p.Members {
			one.Principals = append(one.Principals, Identity{Kind: Kind(m.Kind), ID: m.ID})
		}
		d.Principals = append(d.Principals, one)
	}
	for _, p := range found.Public {
		d.Public = append(d.Public, PublicDiff{p.Bank, Context(p.Context), accessDifferences(p.Differences)})
	}
	for _, c := range found.Strategies {
		d.Strategies = append(d.Strategies, StrategyDiff{c.Bank, Context(c.Context), c.Before, c.After})
	}
	return d
}

func accessDifferences(found []policy.Difference) []Difference {
	list := make([]Difference, len(found))
	for i, d := range found {
		list[i] = Difference{d.Action, d.Bank, ChangeKind(d.Change), Parameters(d.Before), Parameters(d.After)}
	}
	return list
}
