package policy

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// statementSteps is about what it takes to read a statement.
const statementSteps = 1000

// few is how many statements may change for a comparison to look for those near them.
const few = 32

// change is what differs between the documents of two holders.
type change struct {
	documents [][]*Document // for each side, those that only before has, and those that only after has
	// statements are those with which the write may give or take a right: no other statement decides
	// before and after differently. An allow that comes and a deny that goes may give a right. A
	// deny that comes and an allow that goes may take one.
	statements map[*Statement]bool
	parties    int // that have had the change
}

// changes returns the change of the party. Most parties of a write have the same.
func (m *comparison) changes() *change {
	one, other := m.before.sides, m.after.sides
	if len(one) != len(other) { // the sides do not correspond
		one = [][]*Document{slices.Concat(one...), nil}
		other = [][]*Document{nil, slices.Concat(other...)}
	}
	c := &change{statements: map[*Statement]bool{}}
	for side := range one {
		before, after := parted(one[side], other[side])
		c.documents = append(c.documents, before, after)
	}
	if l := m.last; l == nil || !slices.EqualFunc(l.documents, c.documents, slices.Equal) {
		for i := 0; i < len(c.documents); i += 2 {
			before, after := c.documents[i], c.documents[i+1]
			m.mark(c.statements, before, after, EffectDeny)
			m.mark(c.statements, after, before, EffectAllow)
		}
		m.last = c
	}
	m.last.parties++
	return m.last
}

// mark marks statements of documents that no other document contains. gives is the effect of those
// that give a right.
func (m *comparison) mark(marked map[*Statement]bool, documents, others []*Document, gives Effect) {
	if len(documents) == 0 {
		return
	}
	known := map[string]bool{}
	for _, d := range others {
		spend(m.call, statementSteps*len(d.Statements))
		for i := range d.Statements {
			known[d.Statements[i].matches()] = true
		}
	}
	for _, d := range documents {
		spend(m.call, statementSteps*len(d.Statements))
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
	m.index = newIndex(m.call, statements, nil)
	if !fits(m.call, len(m.naming), len(statements)) {
		return
	}
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
		spend(m.call, 4*(len(st.Banks)*len(banks)+len(st.Actions)*len(actions)))
		return !ended(m.call) && m.by.compares(st) && meet(st.Banks, banks) &&
			meet(st.Actions, actions)
	}
}

// collect returns the statements that count, and their numbers by document. The last statement
// belongs to no document. It has the patterns of public access.
func (m *comparison) collect(
	counts func(*Statement) bool,
) (statements []*Statement, numbers map[*Document][]int32) {
	var documents []*Document
	for _, h := range m.holders() {
		documents = append(documents, slices.Concat(h.sides...)...)
	}
	statements, numbers = collect(documents, counts)
	return append(statements, &Statement{Actions: m.publicActions()}), numbers
}

// collect returns the statements of documents that count, and their numbers by document.
func collect(
	documents []*Document, counts func(*Statement) bool,
) (statements []*Statement, numbers map[*Document][]int32) {
	numbers = map[*Document][]int32{}
	for _, d := range documents {
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
	return statements, numbers
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

// bankRules returns the ids of the banks that need their own spot, sorted: before and after decide
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

// spots returns every spot where a data-plane right may exceed: those of classes of banks, and
// those of own.
func (m *comparison) spots(own []string) (all, owned []gridCell) {
	if m.by.Banks {
		return nil, nil
	}
	apart := map[string]bool{}
	for _, id := range slices.Concat(own, m.after.shut) {
		apart[id] = true
	}
	seen := sieve{}
	for class, name := range m.banks.names {
		wide := strings.HasSuffix(name, "*")
		for wide && apart[name] {
			name += "*" // is in the same class
		}
		if !apart[name] && m.changed.meets(m.reach[class]) && seen.fresh(m.reach[class]) {
			all = append(all, gridCell{name, int32(class), false, nil})
		}
	}
	for _, id := range own {
		owned = append(owned, gridCell{id, m.banks.of(id), true, m.openings(id)})
	}
	return all, owned
}

// openings are the public access of one bank, before and after.
type openings struct{ before, after *Bank }

// openings returns the public access of a bank. nil: neither before nor after has it.
func (m *comparison) openings(bank string) *openings {
	o := openings{m.before.public[bank], m.after.public[bank]}
	if o.before == nil && o.after == nil {
		return nil
	}
	return &o
}

// contexts yields enough contexts to find an excess in the requests of an unmapped sender for an
// action. Two values of a scope are alike when their overrides say the same of the action: of these
// it uses the first. So there are a few contexts, whatever the number of overrides.
func (m *comparison) contexts(of *openings, action string) iter.Seq[Context] {
	before, after := m.apart(of.before, action), m.apart(of.after, action)
	type say struct{ before, after saying }
	for _, scope := range scopes {
		seen := map[say]bool{}
		for _, value := range values(scope, before, after) {
			c := context{scope, value}
			if now := (say{before[c], after[c]}); seen[now] {
				delete(before, c)
				delete(after, c)
			} else {
				seen[now] = true
			}
		}
	}
	return func(yield func(Context) bool) {
		for in := range contexts(m.call, before, after) {
			if !yield(m.from(in)) {
				return
			}
		}
	}
}

// saying is what an override says of an action.
type saying int

const (
	allows saying = iota + 1
	lacks
)

// apart returns what each override of a bank says of an action. Of a sender of one provider it
// leaves out the overrides for other providers.
func (m *comparison) apart(b *Bank, action string) map[context]saying {
	if b == nil {
		return nil
	}
	said := make(map[context]saying, len(b.openings))
	for c, o := range b.openings {
		if m.provider != nil && c.scope == Provider && c.value != *m.provider {
			continue
		}
		spend(m.call, 50+5*len(o.actions))
		if said[c] = lacks; covers(o.actions, action) {
			said[c] = allows
		}
	}
	return said
}
