package policy

import (
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
)

// merged is what allows come to, however they are added.
type merged struct {
	sum     Parameters      // but for the tag groups
	groups  []*match        // that have tag groups, in gathering order
	winners [scalars]*match // by slot: whose value is in force
	matches []*match        // all of them, in gathering order, if they are recorded
}

// scalar is a parameter of which one value is in force.
type scalar[T comparable] struct {
	slot int
	name string
	at   func(*Parameters) **T
	// wider reports whether a gives more than b: within a side the widest value
	// prevails, between the sides the narrower. nil: values do not compare, so that
	// rank decides within a side, and the scoping side between the two.
	wider func(a, b T) bool
}

// scalars is how many there are.
const scalars = 6

var (
	recallBudget = scalar[string]{
		slot: 0, name: "recall_budget",
		at: func(p *Parameters) **string { return &p.RecallBudget },
		wider: func(a, b string) bool {
			return slices.Index(budgets, a) > slices.Index(budgets, b)
		},
	}
	recallMaxTokens = scalar[int64]{
		slot: 1, name: "recall_max_tokens",
		at:    func(p *Parameters) **int64 { return &p.RecallMaxTokens },
		wider: func(a, b int64) bool { return a > b },
	}
	retainEveryNTurns = scalar[int64]{
		slot: 2, name: "retain_every_n_turns",
		at:    func(p *Parameters) **int64 { return &p.RetainEveryNTurns },
		wider: func(a, b int64) bool { return a < b }, // to retain more often is to give more
	}
	retainStrategy = scalar[string]{
		slot: 3, name: "retain_strategy",
		at: func(p *Parameters) **string { return &p.RetainStrategy },
	}
	llmModel = scalar[string]{
		slot: 4, name: "llm_model",
		at: func(p *Parameters) **string { return &p.LLMModel },
	}
	llmProvider = scalar[string]{
		slot: 5, name: "llm_provider",
		at: func(p *Parameters) **string { return &p.LLMProvider },
	}
)

// add adds an allow that matches.
func (m *merged) add(c *match) {
	recallBudget.add(m, c)
	recallMaxTokens.add(m, c)
	retainEveryNTurns.add(m, c)
	retainStrategy.add(m, c)
	llmModel.add(m, c)
	llmProvider.add(m, c)
	m.sum.RetainRoles = union(m.sum.RetainRoles, c.sets.RetainRoles)
	m.sum.RetainTags = union(m.sum.RetainTags, c.sets.RetainTags)
	m.sum.ExcludeProviders = union(m.sum.ExcludeProviders, c.sets.ExcludeProviders)
	if c.sets.RecallTagGroups != nil {
		at, _ := slices.BinarySearchFunc(m.groups, c, (*match).gathered)
		m.groups = slices.Insert(slices.Clip(m.groups), at, c)
	}
	if c.lost != nil {
		m.matches = append(m.matches, c)
	}
}

// parameters returns what is given.
func (m *merged) parameters() Parameters {
	p := m.sum
	for _, c := range m.groups {
		p.RecallTagGroups = joinGroups(p.RecallTagGroups, c.sets.RecallTagGroups)
	}
	return p
}

// narrow joins the two sides of a service account: what both of them give.
func narrow(owner, scoping *merged) Parameters {
	var p Parameters
	recallBudget.narrow(&p, owner, scoping)
	recallMaxTokens.narrow(&p, owner, scoping)
	retainEveryNTurns.narrow(&p, owner, scoping)
	retainStrategy.narrow(&p, owner, scoping)
	llmModel.narrow(&p, owner, scoping)
	llmProvider.narrow(&p, owner, scoping)
	o, s := owner.parameters(), scoping.parameters()
	p.RecallTagGroups = joinGroups(o.RecallTagGroups, s.RecallTagGroups)
	p.RetainRoles = intersection(o.RetainRoles, s.RetainRoles)
	p.RetainTags = union(o.RetainTags, s.RetainTags)
	p.ExcludeProviders = union(o.ExcludeProviders, s.ExcludeProviders)
	return p
}

// settle tells the statements that were recorded to which others they lost.
func (m *merged) settle() {
	recallBudget.settle(m)
	recallMaxTokens.settle(m)
	retainEveryNTurns.settle(m)
	retainStrategy.settle(m)
	llmModel.settle(m)
	llmProvider.settle(m)
}

// add puts a value in force that beats the one that is.
func (f scalar[T]) add(m *merged, c *match) {
	value := *f.at(c.sets)
	if value == nil {
		return
	}
	if w := m.winners[f.slot]; w == nil || f.beats(c, w) {
		m.winners[f.slot] = c
		*f.at(&m.sum) = value
	}
}

// beats is strict: of two equal values the one gathered first stays.
func (f scalar[T]) beats(a, b *match) bool {
	if f.wider == nil {
		return a.outranks(b)
	}
	return f.wider(**f.at(a.sets), **f.at(b.sets))
}

func (f scalar[T]) settle(m *merged) {
	winner := m.winners[f.slot]
	for _, c := range m.matches {
		if v := *f.at(c.sets); v != nil && *v != **f.at(winner.sets) {
			c.lose(f.name, winner)
		}
	}
}

// narrow finds the value in force between the two sides. A side that does not
// set it gives way.
func (f scalar[T]) narrow(p *Parameters, owner, scoping *merged) {
	o, s := *f.at(&owner.sum), *f.at(&scoping.sum)
	switch {
	case s == nil:
		*f.at(p) = o
	case o == nil:
		*f.at(p) = s
	case f.wider != nil && f.wider(*s, *o):
		*f.at(p) = o
		f.concede(scoping, owner)
	default:
		*f.at(p) = s
		f.concede(owner, scoping)
	}
}

// concede tells the statements whose value was in force on the losing side
// which statement of the winning side they lost to.
func (f scalar[T]) concede(loser, winner *merged) {
	lost, won := **f.at(&loser.sum), **f.at(&winner.sum)
	if lost == won {
		return
	}
	for _, c := range loser.matches {
		if v := *f.at(c.sets); v != nil && *v == lost {
			c.lose(f.name, winner.winners[f.slot])
		}
	}
}

// union adds to a list that is sorted by code point, which is the order of UTF-8 bytes. It is nil only when both lists are.
func union(sorted, b []string) []string {
	if b == nil {
		return sorted
	}
	all := append(append([]string{}, sorted...), b...)
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
