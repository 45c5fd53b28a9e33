package policy

import (
	"maps"
	"slices"
)

// comparison compares what a party of a write may do before and after it with what the grantor of
// the write may do.
type comparison struct {
	call Call
	*granting
	before, after *holder
	provider      *string // of the party's requests; nil: any

	index
	reach   []bitset // for each class of banks, the statements that cover it
	changed bitset   // where none of these statements matches, before and after decide the same
}

// granting is what a Compiler for one call knows of the last grantor.
type granting struct {
	by       *Grantor
	grantor  *holder
	harmless map[*Statement]bool // the grantor has every right that these may give or take
}

// holder is what a party or a grantor may do at one moment. It is an unmapped sender when public is
// not nil. Otherwise, each of its sides must allow a request and none may deny it.
type holder struct {
	sides  [][]*Document // nil: it is denied everything
	shut   []string      // the banks on which it is denied everything
	public map[string]*Bank

	allows []bitset // by side
	denies bitset
}

// spot is a bank, or stands for all banks of a class except those with a spot of their own.
type spot struct {
	bank     string
	class    int32
	own      bool
	contexts []Context // of an unmapped sender's requests; one is zero when there is none
}

func (c *Compiler) comparison(by *Grantor, before, after *holder) *comparison {
	g := c.granting
	if g == nil || g.by != by {
		g = &granting{by, c.holder(&by.Subject, by.Shut), map[*Statement]bool{}}
	}
	if c.apart != nil {
		c.granting = g
	}
	return &comparison{call: c.call, granting: g, before: before, after: after}
}

// holder reads the documents of a subject. One that does not parse denies everything.
func (c *Compiler) holder(s *Subject, shut []string) *holder {
	h := &holder{shut: shut}
	if s == nil || s.Closed != "" || s.Kind != User && s.Kind != ServiceAccount {
		return h
	}
	sides := [][]*Document{make([]*Document, len(s.Grants))}
	fault := false
	for i, g := range s.Grants {
		p := c.parse(g.Document)
		sides[0][i], fault = p.document, fault || p.fault != nil
	}
	for _, n := range s.narrowing() {
		p := c.parse(n.Document)
		sides, fault = append(sides, []*Document{p.document}), fault || p.fault != nil
	}
	if !fault {
		h.sides = sides
	}
	return h
}

// unmapped returns an unmapped sender on banks with policies, some of which may be nil.
func unmapped(banks ...*Named) *holder {
	h := &holder{public: map[string]*Bank{}}
	for _, n := range banks {
		if b := CompileBank(n); b != nil {
			h.public[b.id] = b
		}
	}
	return h
}

// administrative reports whether an action, or all that a pattern covers, is of the control plane.
func administrative(action string) bool {
	_, ok := firstAction(controlPlane, action)
	return ok
}

// excess returns the first excess.
func (m *comparison) excess() (Excess, bool) {
	changed, own := m.changes(), m.own()
	if len(own) > 0 || len(changed) > few {
		return m.search(changed, own)
	}
	maps.DeleteFunc(changed, func(st *Statement, _ bool) bool { return m.harmless[st] })
	if len(changed) == 0 {
		return Excess{}, false
	}
	if m.allows(changed) {
		maps.Copy(m.harmless, changed)
		return Excess{}, false
	}
	return m.search(changed, nil)
}

// allows reports whether the grantor has every right that changed statements may give or take,
// whatever the other statements of the party say. It takes less time than search.
func (m *comparison) allows(changed map[*Statement]bool) bool {
	all := &Document{}
	for st := range changed {
		all.Statements = append(all.Statements, Statement{
			Effect: EffectAllow, Actions: st.Actions, Banks: st.Banks,
		})
	}
	n := *m
	n.before, n.after = &holder{}, &holder{sides: [][]*Document{{all}}}
	_, found := n.search(n.changes(), nil)
	return !found
}

// search looks for an excess where changed statements match, and on banks that need spots of their
// own. When the call ends, it reports one without a witness.
func (m *comparison) search(changed map[*Statement]bool, own []string) (Excess, bool) {
	m.read(changed, len(own) == 0)
	spots := m.spots(own)
	for action := range int32(len(m.actions.names)) {
		if administrative(m.actions.names[action]) {
			if e, found := m.control(action); found {
				return e, true
			}
			continue
		}
		for i := range spots {
			if e, found := m.data(action, &spots[i]); found {
				return e, true
			}
		}
		if ended(m.call) {
			return Excess{}, true
		}
	}
	return Excess{}, false
}

// control compares the rights to a class of control-plane actions.
func (m *comparison) control(action int32) (Excess, bool) {
	const all = 0 // the class of controlBank
	name, covering, reach := m.actions.names[action], m.covering[action], m.reach[all]
	if !m.changed.meetsBoth(covering, reach) {
		return Excess{}, false
	}
	before, after := m.before.allowed(covering, reach), m.after.allowed(covering, reach)
	if before == after || m.grantor.allowed(covering, reach) {
		return Excess{}, false
	}
	vouched := func(pattern string) bool { return vouches(pattern, name) }
	if !m.grantor.denied(covering, reach) && slices.ContainsFunc(m.by.Vouched, vouched) {
		return Excess{}, false
	}
	return Excess{Action: name, Bank: controlBank, Taken: before}, true
}

// data compares the rights to a class of data-plane actions.
func (m *comparison) data(action int32, s *spot) (Excess, bool) {
	covering, reach := m.covering[action], m.reach[s.class]
	if !s.own && !m.changed.meetsBoth(covering, reach) {
		return Excess{}, false
	}
	allowed := func(h *holder, in *Context) bool {
		if h.public != nil {
			return h.public[s.bank].public(m.actions.names[action], in).outcome == Allow
		}
		return h.allowed(covering, reach) && !(s.own && slices.Contains(h.shut, s.bank))
	}
	if allowed(m.grantor, nil) {
		return Excess{}, false
	}
	for _, in := range s.contexts {
		if allowed(m.after, &in) && !allowed(m.before, &in) {
			return Excess{Action: m.actions.names[action], Bank: s.bank, Context: in}, true
		}
	}
	return Excess{}, false
}

// allowed reports whether the policies allow the requests of a class. The class is given by the
// statements that cover its actions and those that cover its banks.
func (h *holder) allowed(covering, reach bitset) bool {
	silent := func(allows bitset) bool { return !allows.meetsBoth(covering, reach) }
	return !h.denied(covering, reach) && !slices.ContainsFunc(h.allows, silent)
}

// denied reports whether no host may vouch for the requests of a class.
func (h *holder) denied(covering, reach bitset) bool {
	return h.sides == nil || h.denies.meetsBoth(covering, reach)
}
