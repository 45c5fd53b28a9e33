package policy

import (
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
)

// merged is what the matching allows of a side come to.
type merged struct {
	Parameters
	matches []match
	winners map[string]*match // by parameter: the statement whose value is in force
}

// scalar is a parameter of which one value is in force.
type scalar[T comparable] struct {
	name string
	at   func(*Parameters) **T
	// wider reports whether a gives more than b: within a side the widest value
	// prevails, between the sides the narrower. nil: values do not compare, so that
	// rank decides within a side, and the scoping side between the two.
	wider func(a, b T) bool
}

var (
	recallBudget = scalar[string]{
		name: "recall_budget",
		at:   func(p *Parameters) **string { return &p.RecallBudget },
		wider: func(a, b string) bool {
			return slices.Index(budgets, a) > slices.Index(budgets, b)
		},
	}
	recallMaxTokens = scalar[int64]{
		name:  "recall_max_tokens",
		at:    func(p *Parameters) **int64 { return &p.RecallMaxTokens },
		wider: func(a, b int64) bool { return a > b },
	}
	retainEveryNTurns = scalar[int64]{
		name:  "retain_every_n_turns",
		at:    func(p *Parameters) **int64 { return &p.RetainEveryNTurns },
		wider: func(a, b int64) bool { return a < b }, // to retain more often is to give more
	}
	retainStrategy = scalar[string]{
		name: "retain_strategy",
		at:   func(p *Parameters) **string { return &p.RetainStrategy },
	}
	llmModel = scalar[string]{
		name: "llm_model",
		at:   func(p *Parameters) **string { return &p.LLMModel },
	}
	llmProvider = scalar[string]{
		name: "llm_provider",
		at:   func(p *Parameters) **string { return &p.LLMProvider },
	}
)

// merge joins the parameters of the side's matching allows.
func (s *side) merge() *merged {
	m := &merged{matches: s.matches, winners: map[string]*match{}}
	recallBudget.settle(m)
	recallMaxTokens.settle(m)
	retainEveryNTurns.settle(m)
	retainStrategy.settle(m)
	llmModel.settle(m)
	llmProvider.settle(m)
	for i := range m.matches {
		p := m.matches[i].sets
		m.RecallTagGroups = joinGroups(m.RecallTagGroups, p.RecallTagGroups)
		m.RetainRoles = union(m.RetainRoles, p.RetainRoles)
		m.RetainTags = union(m.RetainTags, p.RetainTags)
		m.ExcludeProviders = union(m.ExcludeProviders, p.ExcludeProviders)
	}
	return m
}

// narrow joins the two sides of a service account: what both of them give.
func narrow(owner, scoping *merged) *merged {
	m := &merged{}
	recallBudget.narrow(m, owner, scoping)
	recallMaxTokens.narrow(m, owner, scoping)
	retainEveryNTurns.narrow(m, owner, scoping)
	retainStrategy.narrow(m, owner, scoping)
	llmModel.narrow(m, owner, scoping)
	llmProvider.narrow(m, owner, scoping)
	m.RecallTagGroups = joinGroups(owner.RecallTagGroups, scoping.RecallTagGroups)
	m.RetainRoles = intersection(owner.RetainRoles, scoping.RetainRoles)
	m.RetainTags = union(owner.RetainTags, scoping.RetainTags)
	m.ExcludeProviders = union(owner.ExcludeProviders, scoping.ExcludeProviders)
	return m
}

// settle finds the value in force on a side, and tells the others which
// statement they lost to.
func (f scalar[T]) settle(m *merged) {
	var winner *match
	for i := range m.matches {
		c := &m.matches[i]
		if *f.at(c.sets) != nil && (winner == nil || f.beats(c, winner)) {
			winner = c
		}
	}
	if winner == nil {
		return
	}
	value := *f.at(winner.sets)
	*f.at(&m.Parameters) = value
	m.winners[f.name] = winner
	for _, c := range m.matches {
		if v := *f.at(c.sets); v != nil && *v != *value {
			c.lose(f.name, winner)
		}
	}
}

// beats is strict: of two equal values the one gathered first stays.
func (f scalar[T]) beats(a, b *match) bool {
	if f.wider == nil {
		return a.outranks(b)
	}
	return f.wider(**f.at(a.sets), **f.at(b.sets))
}

// narrow finds the value in force between the two sides. A side that does not
// set it gives way.
func (f scalar[T]) narrow(m, owner, scoping *merged) {
	o, s := *f.at(&owner.Parameters), *f.at(&scoping.Parameters)
	switch {
	case s == nil:
		*f.at(&m.Parameters) = o
	case o == nil:
		*f.at(&m.Parameters) = s
	case f.wider != nil && f.wider(*s, *o):
		*f.at(&m.Parameters) = o
		f.concede(scoping, owner)
	default:
		*f.at(&m.Parameters) = s
		f.concede(owner, scoping)
	}
}

// concede tells the statements whose value was in force on the losing side
// which statement of the winning side they lost to.
func (f scalar[T]) concede(loser, winner *merged) {
	lost, won := **f.at(&loser.Parameters), **f.at(&winner.Parameters)
	if lost == won {
		return
	}
	for _, c := range loser.matches {
		if v := *f.at(c.sets); v != nil && *v == lost {
			c.lose(f.name, winner.winners[f.name])
		}
	}
}

// union sorts by code point, which is the order of UTF-8 bytes. It is nil only
// when both lists are.
func union(a, b []string) []string {
	if a == nil && b == nil {
		return nil
	}
	all := append(append([]string{}, a...), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// intersection of two sorted lists. One that is not set gives way; two that
// have nothing in common leave an empty list, which is not the same.
func intersection(a, b []string) []string {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := []string{}
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// joinGroups appends b to a. Of groups that are equal as JSON values the first
// stays, as it was spelled. It is nil only when both are.
func joinGroups(a, b []json.RawMessage) []json.RawMessage {
	if a == nil && b == nil {
		return nil
	}
	all := []json.RawMessage{}
	seen := map[string]bool{}
	for _, group := range slices.Concat(a, b) {
		if key := canonical(group); !seen[key] {
			seen[key] = true
			all = append(all, group)
		}
	}
	return all
}

// canonical is the same for equal JSON values. One without a canonical form is
// equal only to what is spelled like it.
func canonical(group json.RawMessage) string {
	if form, err := jcs.Canonical(group); err == nil {
		return string(form)
	}
	return string(group)
}
