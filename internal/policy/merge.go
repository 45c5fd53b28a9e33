package policy

import (
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
)

// merged is what allows come to, however they are added.
type merged struct {
	sum     Parameters      // of the single values
	lists   []*match        // that set a list, in no order: parameters joins all of them at once
	known   *Parameters     // what parameters has returned; nil: something was added since
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
	// rank decides within a side, and between the sides the last that sets it.
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
	if c.sets.hasLists() {
		m.lists = append(m.lists, c)
	}
	m.known = nil
	if c.lost != nil {
		m.matches = append(m.matches, c)
	}
}

// parameters returns what is given, in n log n of what the matches say. Its lists are shared.
func (m *merged) parameters() Parameters {
	if m.known != nil {
		return *m.known
	}
	p := m.sum
	for _, c := range slices.SortedFunc(slices.Values(m.lists), (*match).gathered) {
		p.RetainRoles = behind(p.RetainRoles, c.sets.RetainRoles)
		p.RetainTags = behind(p.RetainTags, c.sets.RetainTags)
		p.ExcludeProviders = behind(p.ExcludeProviders, c.sets.ExcludeProviders)
		p.RecallTagGroups = behind(p.RecallTagGroups, c.sets.RecallTagGroups)
	}
	p.RetainRoles, p.RetainTags, p.ExcludeProviders = distinct(p.RetainRoles), distinct(p.RetainTags), distinct(p.ExcludeProviders)
	p.RecallTagGroups = distinctGroups(p.RecallTagGroups)
	m.known = &p
	return p
}

// narrowed returns what the first side gives, narrowed by each of the others in turn.
func narrowed(sides []*side) Parameters {
	if len(sides) == 1 {
		return sides[0].parameters()
	}
	m := sides[0].merged
	m.sum = sides[0].parameters()
	for _, s := range sides[1:] {
		if s.limits {
			m.limit(&s.merged)
		} else {
			m.narrow(&s.merged)
		}
	}
	return m.sum
}

// narrow leaves in the sum, lists included, what both m and by give. What they share with other copies stays as it is.
func (m *merged) narrow(by *merged) {
	recallBudget.narrow(m, by)
	recallMaxTokens.narrow(m, by)
	retainEveryNTurns.narrow(m, by)
	retainStrategy.narrow(m, by)
	llmModel.narrow(m, by)
	llmProvider.narrow(m, by)
	lists := by.parameters()
	m.sum.RetainRoles = intersection(m.sum.RetainRoles, lists.RetainRoles)
	m.sum.RetainTags = union(m.sum.RetainTags, lists.RetainTags)
	m.sum.ExcludeProviders = union(m.sum.ExcludeProviders, lists.ExcludeProviders)
	m.sum.RecallTagGroups = distinctGroups(behind(slices.Clip(m.sum.RecallTagGroups), lists.RecallTagGroups))
	m.matches = slices.Concat(m.matches, by.matches)
}

// limit leaves what m gives, or the lesser where by gives less of it. It adds nothing that m does
// not give.
func (m *merged) limit(by *merged) {
	recallBudget.limit(m, by)
	recallMaxTokens.limit(m, by)
	retainEveryNTurns.limit(m, by)
	lists := by.parameters()
	if m.sum.RetainRoles != nil {
		m.sum.RetainRoles = intersection(m.sum.RetainRoles, lists.RetainRoles)
	}
	if m.sum.ExcludeProviders != nil {
		m.sum.ExcludeProviders = union(m.sum.ExcludeProviders, lists.ExcludeProviders)
	}
	m.matches = slices.Concat(m.matches, by.matches)
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

// narrow puts the value in force that prevails between m and by. Where one of
// them does not set it the other stands, and of equal values the one of m.
func (f scalar[T]) narrow(m, by *merged) {
	own, other := *f.at(&m.sum), *f.at(&by.sum)
	switch {
	case other == nil || same(own, other):
	case own != nil && f.wider != nil && f.wider(*other, *own):
		f.concede(by, m)
	default:
		f.concede(m, by)
		*f.at(&m.sum), m.winners[f.slot] = other, by.winners[f.slot]
	}
}

// limit puts the lesser value in force where both set one.
func (f scalar[T]) limit(m, by *merged) {
	if *f.at(&m.sum) != nil {
		f.narrow(m, by)
	}
}

// concede tells the statements whose value was in force for the loser which
// statement of the winner they lost to.
func (f scalar[T]) concede(loser, winner *merged) {
	lost := *f.at(&loser.sum)
	for _, c := range loser.matches {
		if v := *f.at(c.sets); v != nil && same(v, lost) {
			c.lose(f.name, winner.winners[f.slot])
		}
	}
}

// union returns what either list has. It is nil only when both are.
func union(a, b []string) []string { return distinct(behind(slices.Clip(a), b)) }

// behind appends b to a. It is nil only when both are.
func behind[T any](a, b []T) []T {
	if a == nil && b != nil {
		a = make([]T, 0, len(b))
	}
	return append(a, b...)
}

// distinct returns a list sorted by code point, which is the order of UTF-8 bytes, each element once. Nil stays nil. It is not a copy
// where there is nothing to do.
func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
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
		if _, found := slices.BinarySearch(b, s); found {
			both = append(both, s)
		}
	}
	return both
}

// distinctGroups leaves of groups that are equal as JSON values the first, as it was spelled. Nil stays nil.
func distinctGroups(all []json.RawMessage) []json.RawMessage {
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(group json.RawMessage) bool {
		key := canonical(group)
		again := seen[key]
		seen[key] = true
		return again
	})
}

// canonical is the same for equal JSON values. One without a canonical form is
// equal only to what is spelled like it.
func canonical(group json.RawMessage) string {
	if form, err := jcs.Canonical(group); err == nil {
		return string(form)
	}
	return string(group)
}
