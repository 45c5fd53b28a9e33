package policy

import (
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/parameter"
)

// merged is the sum of matching allows. The order of adding them does not matter.
type merged struct {
	schema  *Schema
	winners []*match   // by parameter, the match whose value is in force; nil: none yet
	lists   []*match   // matches that set a list to join, in no order; parameters joins them
	known   bool       // values is the last result of parameters, and no match was added since
	values  Parameters // see known
	matches []*match   // all matches in gathering order, if they are recorded
}

// add adds a matching allow.
func (m *merged) add(c *match) {
	m.known = false
	if c.lost != nil {
		m.matches = append(m.matches, c)
	}
	joins := false
	for i, v := range c.sets {
		if v == nil {
			continue
		}
		p := &m.schema.list[i]
		if p.joins() {
			joins = true
		} else if w := m.winner(i); w == nil || p.beats(i, c, w) {
			if m.winners == nil {
				m.winners = make([]*match, len(m.schema.list))
			}
			m.winners[i] = c
		}
	}
	if joins {
		m.lists = append(m.lists, c)
	}
}

// winner returns the match whose value of a parameter is in force, or nil.
func (m *merged) winner(i int) *match {
	if m.winners == nil {
		return nil
	}
	return m.winners[i]
}

// beats reports whether a's value wins over b's. It is strict: of two equal values, the first
// gathered stays in force.
func (p *Parameter) beats(i int, a, b *match) bool {
	switch p.Merge {
	case parameter.Greatest:
		return p.compare(a.sets[i], b.sets[i]) > 0
	case parameter.Least:
		return p.compare(a.sets[i], b.sets[i]) < 0
	}
	return a.outranks(b)
}

// unmerged is about how many bytes parameters merges.
func (m *merged) unmerged() (n int) {
	if !m.known {
		for _, c := range m.lists {
			n += c.sets.weight()
		}
	}
	return n
}

// parameters returns the merged parameters. For n values in the matches it takes n log n steps. Its
// values are shared.
func (m *merged) parameters() Parameters {
	if m.known {
		return m.values
	}
	m.known, m.values = true, nil
	if m.winners == nil && m.lists == nil {
		return nil
	}
	m.values = make(Parameters, len(m.schema.list))
	for i, w := range m.winners {
		if w != nil {
			m.values[i] = w.sets[i]
		}
	}
	if len(m.lists) == 0 {
		return m.values
	}
	sorted := slices.SortedFunc(slices.Values(m.lists), (*match).gathered)
	for i := range m.schema.list {
		if p := &m.schema.list[i]; p.joins() {
			m.values[i] = p.join(i, sorted)
		}
	}
	return m.values
}

// join returns the list of all values that matches in gathering order set. nil: none sets one.
func (p *Parameter) join(i int, matches []*match) any {
	switch {
	case p.Type == parameter.ObjectList:
		return orNil(once(listed[json.RawMessage](i, matches), canonical))
	case p.Merge == parameter.Union:
		return orNil(distinct(listed[string](i, matches)))
	}
	return orNil(once(listed[string](i, matches), itself))
}

// listed returns all elements of the lists that matches set. nil: none sets one.
func listed[T any](i int, matches []*match) (all []T) {
	for _, c := range matches {
		list, _ := c.sets[i].([]T)
		if all == nil && list != nil {
			all = make([]T, 0, len(list))
		}
		all = append(all, list...)
	}
	return all
}

// orNil returns a list as a value: a nil list is not set.
func orNil[T any](list []T) any {
	if list == nil {
		return nil
	}
	return list
}

// narrowed returns the parameters of the first side, narrowed by each other side in turn.
func narrowed(sides []*side) Parameters {
	if len(sides) == 1 {
		return sides[0].parameters()
	}
	m := sides[0].merged
	m.values, m.winners = slices.Clone(sides[0].parameters()), slices.Clone(m.winners)
	for _, s := range sides[1:] {
		m.narrow(&s.merged, s.limits)
	}
	return m.values
}

// narrow narrows the values in force by those of another side. A parameter that only one side sets
// keeps that value. When by only limits, it reduces what m gives and adds nothing. Memory shared
// with other copies does not change.
func (m *merged) narrow(by *merged, limits bool) {
	for i, other := range by.parameters() {
		p, own := &m.schema.list[i], m.values.at(i)
		if other == nil || limits && (own == nil || !p.limits()) {
			continue
		}
		if m.values == nil {
			m.values = make(Parameters, len(m.schema.list))
		}
		switch {
		case own != nil && p.combines():
			m.values[i] = p.combine(own, other)
		case own != nil && sameValue(own, other): // of equal values, m's stays
		case own != nil && p.keeps(own, other):
			by.concede(i, m)
		default:
			m.concede(i, by)
			m.take(i, by)
		}
	}
	m.matches = slices.Concat(m.matches, by.matches)
}

// keeps reports whether narrowing keeps the first of two values that differ.
func (p *Parameter) keeps(own, other any) bool {
	switch p.Narrow {
	case parameter.Lesser:
		return p.compare(own, other) < 0
	case parameter.Greater:
		return p.compare(own, other) > 0
	}
	return false
}

// take puts the other side's value of a parameter in force.
func (m *merged) take(i int, by *merged) {
	m.values[i] = by.values[i]
	if w := by.winner(i); w != nil {
		if m.winners == nil {
			m.winners = make([]*match, len(m.schema.list))
		}
		m.winners[i] = w
	}
}

// concede records, for each match with the value in force, that it lost to the winner's match. A
// list that was joined is not the value of one match: nothing is recorded.
func (m *merged) concede(i int, winner *merged) {
	w, lost := winner.winner(i), m.values.at(i)
	if w == nil || lost == nil || m.schema.list[i].joins() {
		return
	}
	for _, c := range m.matches {
		if v := c.sets.at(i); v != nil && sameValue(v, lost) {
			c.lose(m.schema.list[i].Name, w)
		}
	}
}

// combine returns the list that narrowing makes of two lists.
func (p *Parameter) combine(own, other any) any {
	if objects, is := own.([]json.RawMessage); is {
		if p.Narrow == parameter.Intersect {
			return intersection(objects, other.([]json.RawMessage), canonical)
		}
		return once(joined(objects, other.([]json.RawMessage)), canonical)
	}
	texts, others := own.([]string), other.([]string)
	if p.Narrow == parameter.Intersect {
		return intersection(texts, others, itself)
	}
	both := joined(texts, others)
	if p.Narrow == parameter.Unite || p.Merge == parameter.Union {
		return distinct(both)
	}
	return once(both, itself)
}

// settle records, for each recorded match, which match won over its value.
func (m *merged) settle() {
	for _, c := range m.matches {
		for i, v := range c.sets {
			w := m.winner(i)
			if v != nil && w != nil && !sameValue(v, w.sets[i]) {
				c.lose(m.schema.list[i].Name, w)
			}
		}
	}
}

// joined returns a new list of the elements of both lists.
func joined[T any](a, b []T) []T {
	return append(append(make([]T, 0, len(a)+len(b)), a...), b...)
}

// distinct sorts a list by code point (the order of UTF-8 bytes) and removes repeats, in place. Nil
// stays nil.
func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// once keeps, in place, the first of the elements with equal keys. Nil stays nil.
func once[T any, K comparable](list []T, key func(T) K) []T {
	seen := make(map[K]bool, len(list))
	return slices.DeleteFunc(list, func(v T) bool {
		k := key(v)
		again := seen[k]
		seen[k] = true
		return again
	})
}

// itself is the key of a text.
func itself(text string) string { return text }

// intersection returns the elements of a whose keys b has, each once. It is never nil.
func intersection[T any](a, b []T, key func(T) string) []T {
	left := make(map[string]bool, len(b))
	for _, v := range b {
		left[key(v)] = true
	}
	both := []T{}
	for _, v := range a {
		if k := key(v); left[k] {
			both, left[k] = append(both, v), false
		}
	}
	return both
}

// canonical is equal for equal JSON values. A value without a canonical form equals only a value
// with the same bytes.
func canonical(object json.RawMessage) string {
	if form, err := jcs.Canonical(object); err == nil {
		return string(form)
	}
	return string(object)
}
