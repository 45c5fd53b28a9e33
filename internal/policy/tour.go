package policy

import "slices"

// view is how a table is looked at.
type view struct {
	table   *table   // nil: denies everything
	as      uint8    // which of the grid's tables it is
	shut    []string // the banks that are denied whatever it says, because their own policies do not parse
	without bitset   // the statements that do not count; nil: all do
	// apart is the statements that make a difference to the first view: where none of them matches, both say the same. nil: that is
	// not known.
	apart  bitset
	traced bool // the matches are kept
	call   Call // whose end ends what the view is looked at for; nil: there is none
}

// row is what views make of a class of banks, by class of actions.
type row struct {
	views   []view
	bank    int32
	depth   int // how many rows are above it
	stances [][]*stance
	shut    []bool
	fresh   []bool // is not the same as in the row above, in some view
}

// tour is a way through a grid, or a part of it.
type tour struct {
	*grid
	chosen  []int32 // classes of actions, in order
	within  bitset  // the same
	through bitset  // classes of banks
}

// whole is the tour of everything.
func (g *grid) whole() *tour {
	t := &tour{grid: g, chosen: g.order, within: bitsets(1, len(g.order))[0], through: bitsets(1, len(g.under))[0]}
	t.within.fill()
	t.through.fill()
	return t
}

// reach is the tour of what some statements match, and of the classes of banks above that.
func (g *grid) reach(statements bitset) *tour {
	t := &tour{grid: g, within: bitsets(1, len(g.order))[0], through: bitsets(1, len(g.under))[0]}
	for _, action := range g.order {
		if statements.meets(g.covering[action]) {
			t.chosen = append(t.chosen, action)
			t.within.set(action)
		}
	}
	named := bitsets(1, len(g.under))[0]
	for bank, list := range g.naming {
		if slices.ContainsFunc(list, statements.has) {
			named.set(int32(bank))
		}
	}
	t.enter(0, named, false)
	return t
}

// enter reports whether a class of banks is, or is above or under, one that is named, and adds all that are.
func (t *tour) enter(bank int32, named bitset, under bool) bool {
	under = under || named.has(bank)
	reached := under
	for _, next := range t.under[bank] {
		reached = t.enter(next, named, under) || reached
	}
	if reached {
		t.through.set(bank)
	}
	return reached
}

// walk calls visit with the rows of the classes of banks, each behind those above it, until that returns false. A class is passed over
// where all is the same as in the row above.
func (t *tour) walk(views []view, visit func(r *row) (more bool)) {
	r := &row{views: views, depth: -1}
	for _, v := range views {
		start := v.start()
		if v.apart != nil {
			start = r.stances[0][0]
		}
		r.stances = append(r.stances, slices.Repeat([]*stance{start}, len(t.order)))
	}
	t.descend(0, r, visit)
}

// start is the stance before any statement matches; nil: there are none that could.
func (v *view) start() *stance {
	if v.table == nil {
		return nil
	}
	s := &stance{}
	for _, ways := range v.table.sides {
		s.sides = append(s.sides, newSide(ways))
	}
	return s
}

func (t *tour) descend(bank int32, r *row, visit func(r *row) (more bool)) (more bool) {
	if ended(r.views[0].call) {
		return false
	}
	if below := t.row(bank, r); below != nil {
		if !visit(below) {
			return false
		}
		r = below
	}
	for _, next := range t.under[bank] {
		if t.through.has(next) && !t.descend(next, r, visit) {
			return false
		}
	}
	return true
}

// row returns that of a class of banks; nil: all is the same as above.
func (t *tour) row(bank int32, above *row) *row {
	r := &row{views: above.views, bank: bank, depth: above.depth + 1, stances: slices.Clone(above.stances), fresh: make([]bool, len(t.order))}
	differs := bank == 0
	for i := range r.views {
		shut := slices.Contains(r.views[i].shut, t.banks.names[bank])
		r.shut = append(r.shut, shut)
		differs = differs || shut
	}
	for action := range r.fresh {
		r.fresh[action] = differs
	}
	if own := t.own(bank); own != nil {
		for i := range r.views {
			differs = t.add(r, i, own, above) || differs
		}
	}
	if !differs {
		return nil
	}
	return r
}

// own is the statements that name a class of banks.
type own struct {
	bank    string
	named   []int32
	members bitset   // the same
	matches []*match // as far as they were needed
}

func (t *tour) own(bank int32) *own {
	o := &own{bank: t.banks.names[bank], named: t.naming[bank]}
	if o.named == nil {
		return nil
	}
	o.members, o.matches = bitsets(1, len(t.seats))[0], make([]*match, len(o.named))
	for _, i := range o.named {
		o.members.set(i)
	}
	return o
}

// add adds the statements that name a row's class of banks to the stances of a view.
func (t *tour) add(r *row, view int, own *own, above *row) (differs bool) {
	v, before := &r.views[view], above.stances[view]
	if v.table == nil {
		return false
	}
	stances := slices.Clone(before)
	r.stances[view] = stances
	for _, action := range t.chosen {
		switch covering := t.covering[action]; {
		case !own.members.meets(covering) || before[action].denied(): // nothing more matches, or can change anything
		case v.apart != nil && before[action] == above.stances[0][action] && !own.members.meetsBoth(covering, v.apart):
			stances[action] = r.stances[0][action]
		case ended(v.call):
			return false
		default:
			stances[action] = t.stance(v, action, own, before, stances)
		}
		if stances[action] != before[action] {
			r.fresh[action], differs = true, true
		}
	}
	return differs
}

// stance returns that of a class: the one of a class of actions above when the same statements match.
func (t *tour) stance(v *view, action int32, own *own, before, stances []*stance) *stance {
	for _, closer := range t.above[action][1:] {
		if t.within.has(closer) && before[action] == before[closer] && own.members.sameWithin(t.covering[action], t.covering[closer]) {
			return stances[closer]
		}
	}
	above := before[action]
	s := above
	for n, i := range own.named {
		seat := &t.seats[i]
		if t.covering[action].has(i) && seat.tables&v.as != 0 && (v.without == nil || !v.without.has(i)) {
			s = s.with(own.match(n, seat, v.traced), seat.side, above)
		}
	}
	return s
}

func (o *own) match(n int, s *seat, traced bool) *match {
	if o.matches[n] == nil {
		o.matches[n] = &match{place: s.place, bank: o.bank, sets: &s.written().Parameters}
		if traced {
			o.matches[n].lost = map[string]string{}
		}
	}
	return o.matches[n]
}

// with adds a match to one of the sides, or does so in a copy where the stance is the one that is shared.
func (s *stance) with(m *match, side int, shared *stance) *stance {
	if s == shared {
		s = &stance{slices.Clone(shared.sides)}
	}
	s.sides[side] = s.sides[side].with(m, shared.sides[side])
	return s
}

// with adds a match to a side, or to a copy where it is the one that is shared.
func (s *side) with(m *match, shared *side) *side {
	if s == shared {
		own := *s
		own.matches, own.lists = slices.Clip(own.matches), slices.Clip(own.lists)
		s = &own
	}
	s.add(m)
	return s
}

func (s *stance) denied() bool { return slices.ContainsFunc(s.sides, (*side).denies) }

// rule decides what a view says of a class of actions.
func (r *row) rule(view int, action int32) (Outcome, Parameters) {
	s := r.stances[view][action]
	if s == nil {
		return ImplicitDeny, Parameters{}
	}
	switch said := rule(s.sides); {
	case said.outcome != Allow:
		return said.outcome, Parameters{}
	case r.shut[view]:
		return ImplicitDeny, Parameters{}
	}
	return Allow, narrowed(s.sides)
}

// alike reports whether all views make the same of two classes of actions.
func (r *row) alike(one, other int32) bool {
	return !slices.ContainsFunc(r.stances, func(s []*stance) bool { return s[one] != s[other] })
}
