package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// few is how many statements may change for a comparison to look for those near them.
const few = 32

// changes returns every statement with which the write may give or take a right: no other statement
// decides before and after differently. An allow that comes and a deny that goes may give a right.
// A deny that comes and an allow that goes may take one.
func (m *comparison) changes() map[*Statement]bool {
	one, other := m.before.sides, m.after.sides
	if len(one) != len(other) { // the sides do not correspond
		one = [][]*Document{slices.Concat(one...), nil}
		other = [][]*Document{nil, slices.Concat(other...)}
	}
	changed := map[*Statement]bool{}
	for side := range one {
		before, after := parted(one[side], other[side])
		m.mark(changed, before, after, EffectDeny)
		m.mark(changed, after, before, EffectAllow)
	}
	return changed
}

// mark marks statements of documents that no other document contains. gives is the effect of those
// that give a right.
func (m *comparison) mark(marked map[*Statement]bool, documents, others []*Document, gives Effect) {
	if len(documents) == 0 {
		return
	}
	known := map[string]bool{}
	for _, d := range others {
		for i := range d.Statements {
			known[d.Statements[i].matches()] = true
		}
	}
	for _, d := range documents {
		for i := range d.Statements {
			st := &d.Statements[i]
			counts := st.Effect == gives && !m.by.Banks || st.controls()
			if counts && (len(known) == 0 || !known[st.matches()]) {
				marked[st] = true
			}
		}
	}
}

// parted returns the documents that only one of two lists has.
func parted(one, other []*Document) (ones, others []*Document) {
	for len(one) > 0 && len(other) > 0 && one[0] == other[0] { // most writes change little
		one, other = one[1:], other[1:]
	}
	return except(one, other), except(other, one)
}

// except returns the documents that are not among others.
func except(documents, others []*Document) []*Document {
	there := map[*Document]bool{}
	for _, d := range others {
		there[d] = true
	}
	return slices.DeleteFunc(slices.Clone(documents), func(d *Document) bool { return there[d] })
}

// matches is equal for statements with the same effect on the same requests.
func (s *Statement) matches() string {
	return fmt.Sprintf("%s %q %q", s.Effect, s.Actions, s.Banks)
}

// controls reports whether a statement may decide a control-plane right.
func (s *Statement) controls() bool {
	return slices.Contains(s.Banks, controlBank) && slices.ContainsFunc(s.Actions, administrative)
}

// compares reports whether a statement may decide a right that is compared.
func (g *Grantor) compares(st *Statement) bool { return !g.Banks || st.controls() }

// read indexes the statements that count. When near, it leaves out those that match no request that
// a changed statement matches.
func (m *comparison) read(changed map[*Statement]bool, near bool) {
	statements, numbers := m.collect(m.counts(changed, near))
	for _, h := range m.holders() {
		h.read(statements, numbers)
	}
	m.changed = bitsets(1, len(statements))[0]
	for i, st := range statements {
		if changed[st] {
			m.changed.set(int32(i))
		}
	}
	m.index = newIndex(statements, nil)
	m.reach = bitsets(len(m.naming), len(statements))
	for class := range m.reach { // the parent of a class comes before it
		m.reach[class].add(m.reach[m.banks.parent(int32(class))])
		for _, i := range m.naming[class] {
			m.reach[class].set(i)
		}
	}
}

func (m *comparison) holders() []*holder { return []*holder{m.before, m.after, m.grantor} }

// counts returns a function that reports whether a statement counts.
func (m *comparison) counts(changed map[*Statement]bool, near bool) func(*Statement) bool {
	if !near || len(changed) > few {
		return m.by.compares
	}
	var actions, banks []string
	for st := range changed {
		actions, banks = append(actions, st.Actions...), append(banks, st.Banks...)
	}
	if slices.Contains(actions, recall) {
		actions = append(actions, coveredByRecall...)
	}
	return func(st *Statement) bool {
		return m.by.compares(st) && meet(st.Banks, banks) && meet(st.Actions, actions)
	}
}

// collect returns the statements that count, and their numbers by document. The last statement
// belongs to no document. It has the patterns of public access.
func (m *comparison) collect(
	counts func(*Statement) bool,
) (statements []*Statement, numbers map[*Document][]int32) {
	numbers = map[*Document][]int32{}
	for _, h := range m.holders() {
		for _, d := range slices.Concat(h.sides...) {
			if _, known := numbers[d]; known {
				continue
			}
			numbers[d] = nil
			for i := range d.Statements {
				if st := &d.Statements[i]; counts(st) {
					numbers[d] = append(numbers[d], int32(len(statements)))
					statements = append(statements, st)
				}
			}
		}
	}
	return append(statements, &Statement{Actions: m.publicActions()}), numbers
}

// read sorts the holder's statements by effect.
func (h *holder) read(statements []*Statement, numbers map[*Document][]int32) {
	sets := bitsets(len(h.sides)+1, len(statements))
	h.denies, h.allows = sets[0], sets[1:]
	for side, documents := range h.sides {
		for _, d := range documents {
			for _, i := range numbers[d] {
				if statements[i].Effect == EffectAllow {
					h.allows[side].set(i)
				} else {
					h.denies.set(i)
				}
			}
		}
	}
}

// publicActions returns every action pattern of public access.
func (m *comparison) publicActions() (all []string) {
	for _, h := range []*holder{m.before, m.after} {
		for _, b := range h.public {
			all = append(all, b.publicActions()...)
		}
	}
	return all
}

// meet reports whether a pattern of one list and a pattern of the other cover the same string. The
// other list names what recall covers.
func meet(patterns, others []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		nested := func(o string) bool { return bankCovers(o, p) || bankCovers(p, o) }
		return slices.ContainsFunc(others, nested) || p == recall && meet(coveredByRecall, others)
	})
}

// own returns the ids of the banks that need a spot of their own, sorted: before and after decide
// differently there for another reason than statements.
func (m *comparison) own() []string {
	if m.by.Banks {
		return nil
	}
	ids := slices.Clone(m.by.Shut)
	for _, h := range m.holders() {
		ids = slices.AppendSeq(ids, maps.Keys(h.public))
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(m.after.shut, id) })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// spots returns every spot where a data-plane right may exceed.
func (m *comparison) spots(own []string) []spot {
	if m.by.Banks {
		return nil
	}
	apart := map[string]bool{}
	for _, id := range slices.Concat(own, m.after.shut) {
		apart[id] = true
	}
	var all []spot
	for class, name := range m.banks.names {
		wide := strings.HasSuffix(name, "*")
		for wide && apart[name] {
			name += "*" // is in the same class
		}
		if !apart[name] && m.changed.meets(m.reach[class]) {
			all = append(all, spot{name, int32(class), false, m.contexts(name)})
		}
	}
	for _, id := range own {
		all = append(all, spot{id, m.banks.of(id), true, m.contexts(id)})
	}
	return all
}

// contexts returns a context for each case that the public access of a bank distinguishes.
func (m *comparison) contexts(bank string) []Context {
	openings := func(h *holder) map[context]*opening {
		return cmp.Or(h.public[bank], &Bank{}).openings
	}
	all := contexts(m.call, openings(m.before), openings(m.after))
	for i := range all {
		if m.provider != nil {
			all[i].Provider = *m.provider
		}
	}
	return all
}
