package policy

import (
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
)

// merged is the sum of matching allows. The order of adding them does not matter.
type merged struct {
	sum     Parameters      // the single values in force
	lists   []*match        // matches that set a list, in no order; parameters joins all at once
	known   *Parameters     // the last result of parameters; nil: a match was added since
	winners [scalars]*match // by slot, the match whose value is in force
	matches []*match        // all matches in gathering order, if they are recorded
}

// scalar is a parameter with one value in force.
type scalar[T comparable] struct {
	slot int
	name string
	at   func(*Parameters) **T
	// wider reports whether a gives more than b. Within a side the widest value wins, between sides
	// the narrower. nil: the values do not compare. Then rank decides within a side, and between
	// sides the last side that sets a value wins.
	wider func(a, b T) bool
}

// scalars is the number of scalars.
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
		wider: func(a, b int64) bool { return a < b }, // fewer turns: it retains more often
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

// add adds a matching allow.
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

// parameters returns the merged parameters. For n values in the matches it takes n log n steps. Its
// lists are shared.
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
	p.RetainRoles = distinct(p.RetainRoles)
	p.RetainTags = distinct(p.RetainTags)
	p.ExcludeProviders = distinct(p.ExcludeProviders)
	p.RecallTagGroups = distinctGroups(p.RecallTagGroups)
	m.known = &p
	return p
}

// narrowed returns the parameters of the first side, narrowed by each other side in turn.
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

// narrow reduces the sum, lists included, to what both m and by give. Memory shared with other
// copies does not change.
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
	groups := behind(slices.Clip(m.sum.RecallTagGroups), lists.RecallTagGroups)
	m.sum.RecallTagGroups = distinctGroups(groups)
	m.matches = slices.Concat(m.matches, by.matches)
}

// limit reduces each value that m gives to the lesser value of m and by. It adds nothing that m
// does not give.
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

// settle records, for each recorded match, which match won over its value.
func (m *merged) settle() {
	recallBudget.settle(m)
	recallMaxTokens.settle(m)
	retainEveryNTurns.settle(m)
	retainStrategy.settle(m)
	llmModel.settle(m)
	llmProvider.settle(m)
}

// add puts the match's value in force when it beats the current one.
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

// beats is strict: of two equal values, the first gathered stays in force.
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

// narrow puts the value in force that wins between m and by. When only one of them sets a value,
// that value stays. Of equal values, m's stays.
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

// limit puts the lesser value in force when both set one.
func (f scalar[T]) limit(m, by *merged) {
	if *f.at(&m.sum) != nil {
		f.narrow(m, by)
	}
}

// concede records, for each match of the loser with the value in force, that it lost to the
// winner's match.
func (f scalar[T]) concede(loser, winner *merged) {
	lost := *f.at(&loser.sum)
	for _, c := range loser.matches {
		if v := *f.at(c.sets); v != nil && same(v, lost) {
			c.lose(f.name, winner.winners[f.slot])
		}
	}
}

// union returns the elements of both lists. It is nil only when both lists are nil.
func union(a, b []string) []string { return distinct(behind(slices.Clip(a), b)) }

// behind appends b to a. It returns nil only when both are nil.
func behind[T any](a, b []T) []T {
	if a == nil && b != nil {
		a = make([]T, 0, len(b))
	}
	return append(a, b...)
}

// distinct sorts a list by code point (the order of UTF-8 bytes) and removes repeats, in place. Nil
// stays nil.
func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// intersection returns the common elements of two sorted lists. A nil list is not set: the result
// is the other list. Two lists without a common element give an empty list, not nil.
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

// distinctGroups keeps, of groups that are equal as JSON values, the first as written. Nil stays
// nil.
func distinctGroups(all []json.RawMessage) []json.RawMessage {
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(group json.RawMessage) bool {
		key := canonical(group)
		again := seen[key]
		seen[key] = true
		return again
	})
}

// canonical is equal for equal JSON values. A value without a canonical form equals only a value
// with the same bytes.
func canonical(group json.RawMessage) string {
	if form, err := jcs.Canonical(group); err == nil {
		return string(form)
	}
	return string(group)
}
