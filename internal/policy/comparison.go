package policy

import (
	"maps"
	"math/bits"
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
	last     *change             // of the last party
}

// holder is what a party or a grantor may do in one state. It is an unmapped sender when public is
// not nil. Otherwise, each of its sides must allow a request and none may deny it.
type holder struct {
	sides  [][]*Document // nil: it is denied everything
	shut   []string      // the banks on which it is denied everything
	public map[string]*Bank

	allows []bitset // by side
	denies bitset
}

// gridCell is a bank, or stands for all banks of a class except those with their own spot.
type gridCell struct {
	bank     string
	class    int32
	own      bool
	openings *openings // of an unmapped sender; nil: contexts do not matter
}

func (c *Compiler) comparison(by *Grantor, before, after *holder) *comparison {
	spend(c.call, partySteps)
	g := c.granting
	if g == nil || g.by != by {
		g = &granting{by, c.holder(&by.Subject, by.Shut), map[*Statement]bool{}, nil}
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
		p := c.bound(g.Document, c.parse(g.Document), binding{s.UserID, g.Group})
		sides[0][i], fault = p.document, fault || p.fault != nil
	}
	for _, n := range s.narrowing() {
		p := c.bound(n.Document, c.parse(n.Document), binding{user: s.UserID})
		sides, fault = append(sides, []*Document{p.document}), fault || p.fault != nil
	}
	if !fault {
		h.sides = sides
	}
	return h
}

// unmapped returns an unmapped sender on banks with policies, some of which may be nil.
func (c *Compiler) unmapped(banks ...*Named) *holder {
	h := &holder{public: map[string]*Bank{}}
	for _, n := range banks {
		if b := c.schema.CompileBank(n); b != nil {
			h.public[b.id] = b
		}
	}
	return h
}

// administrative reports whether an action, or all that a pattern covers, is of the control plane.
func administrative(action string) bool { return covers(controlPlane, action) }

// excess returns the first excess.
func (m *comparison) excess() (Excess, bool) {
	change, own := m.changes(), m.own()
	changed := change.statements
	if len(own) > 0 || len(changed) > few && change.parties == 1 {
		return m.search(changed, own)
	}
	maps.DeleteFunc(changed, func(st *Statement, _ bool) bool { return m.harmless[st] })
	if len(changed) == 0 {
		return Excess{}, false
	}
	if change.parties <= 2 && m.allows(changed) {
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
	n, apart := *m, *m.granting
	n.granting, n.before, n.after = &apart, &holder{}, &holder{sides: [][]*Document{{all}}}
	_, found := n.search(n.changes().statements, nil)
	return !found
}

// search looks for an excess where changed statements match, and on banks that need their own
// spots. When the call ends, it reports one without a witness.
//
// Two classes of actions that the same statements cover are decided the same, unless the actions
// are administrative or the spot is the bank of a public access. So are two classes of banks. Of
// equal classes search looks at the first.
func (m *comparison) search(changed map[*Statement]bool, own []string) (Excess, bool) {
	m.read(changed, len(own) == 0)
	if ended(m.call) {
		return Excess{}, true
	}
	spots, owned := m.spots(own)
	meeting := m.meeting(spots)
	seen := sieve{}
	for action := range int32(len(m.actions.names)) {
		spend(m.call, (len(m.changed)+1)*8)
		if ended(m.call) {
			return Excess{}, true
		}
		if administrative(m.actions.names[action]) {
			if e, found := m.control(action); found {
				return e, true
			}
			continue
		}
		if seen.fresh(m.covering[action]) {
			for i := range m.met(action, meeting).all() {
				if e, found := m.data(action, &spots[i]); found {
					return e, true
				}
			}
		}
		for i := range owned {
			if e, found := m.data(action, &owned[i]); found {
				return e, true
			}
		}
	}
	if ended(m.call) {
		return Excess{}, true
	}
	return Excess{}, false
}

// meeting returns, for each statement, the spots that it covers, if the statement has changed.
func (m *comparison) meeting(spots []gridCell) []bitset {
	if !fits(m.call, len(m.changed)*64, len(spots)) {
		return nil
	}
	all := bitsets(len(m.changed)*64, len(spots))
	for i, s := range spots {
		spend(m.call, len(m.changed))
		for w, reach := range m.reach[s.class] {
			for in := reach & m.changed[w]; in != 0; in &= in - 1 {
				all[w<<6+bits.TrailingZeros64(in)].set(int32(i))
			}
		}
	}
	return all
}

// met returns the spots where a changed statement matches a class of actions.
func (m *comparison) met(action int32, meeting []bitset) bitset {
	var all bitset
	if meeting == nil {
		return nil
	}
	for w, covering := range m.covering[action] {
		for in := covering & m.changed[w]; in != 0; in &= in - 1 {
			of := meeting[w<<6+bits.TrailingZeros64(in)]
			if spend(m.call, len(of)); all == nil {
				all = slices.Clone(of)
			} else {
				all.add(of)
			}
		}
	}
	return all
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
func (m *comparison) data(action int32, s *gridCell) (Excess, bool) {
	spend(m.call, 4*len(m.covering[action])+32)
	if m.allowed(m.grantor, action, s, nil) {
		return Excess{}, false
	}
	if s.openings == nil {
		in := m.from(Context{})
		if !m.allowed(m.after, action, s, &in) || m.allowed(m.before, action, s, &in) {
			return Excess{}, false
		}
		return Excess{Action: m.actions.names[action], Bank: s.bank, Context: in}, true
	}
	for in := range m.contexts(s.openings, m.actions.names[action]) {
		if m.allowed(m.after, action, s, &in) && !m.allowed(m.before, action, s, &in) {
			return Excess{Action: m.actions.names[action], Bank: s.bank, Context: in}, true
		}
	}
	return Excess{}, false
}

// allowed reports whether a holder is allowed a class of actions in a spot.
func (m *comparison) allowed(h *holder, action int32, s *gridCell, in *Context) bool {
	if h.public != nil {
		return h.public[s.bank].public(m.actions.names[action], in).outcome == Allow
	}
	return h.allowed(m.covering[action], m.reach[s.class]) &&
		!(s.own && slices.Contains(h.shut, s.bank))
}

// from returns a context with the provider of the party's requests.
func (m *comparison) from(in Context) Context {
	if m.provider != nil {
		in.Provider = *m.provider
	}
	return in
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
