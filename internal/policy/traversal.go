package policy

import "slices"

// view is a table with the conditions under which a tour reads it.
type view struct {
	table   *table   // nil: denies everything
	as      uint8    // which of the grid's tables this is: first, second
	shut    []string // the banks denied whatever the table says: their own policies do not parse
	without bitset   // the statements that do not count; nil: all count
	// apart holds the statements that may make this view differ from the first. Where none of them
	// matches, both decide the same. nil: unknown.
	apart  bitset
	traced bool // matches are recorded
	call   Call // the tour stops when it ends; nil: it never stops early
}

// These are about the steps to look at a class of actions in a row, to decide one, and to merge a
// byte of its parameters.
const (
	rowSteps   = 64
	ruleSteps  = 500
	mergeSteps = 64
)

// keptSteps is what a byte of a result costs that is kept until the end of the call. It bounds the
// memory of results.
const keptSteps = 32

// row holds the results of views for a class of banks, by class of actions.
type row struct {
	views   []view
	bank    int32
	depth   int               // the number of rows above
	stances [][]*classVerdict // by view
	shut    []bool            // by view
	fresh   []bool            // by class of actions: some view differs from the row above
}

// traversal is a way through a grid, or through a part of it.
type traversal struct {
	*classGrid
	chosen  []int32 // the classes of actions to visit, in order
	through bitset  // the classes of banks to visit
}

// whole returns the tour of the whole grid.
func (g *classGrid) whole() *traversal {
	t := g.tour()
	t.chosen = g.order
	t.through.fill()
	return t
}

// tour returns a tour that visits nothing yet.
func (g *classGrid) tour() *traversal {
	return &traversal{classGrid: g, through: bitsets(1, len(g.under))[0]}
}

// reach returns the tour of what some statements match, and of the classes of banks above that.
func (g *classGrid) reach(statements bitset) *traversal {
	t := g.tour()
	for _, action := range g.order {
		if statements.meets(g.covering[action]) {
			t.chosen = append(t.chosen, action)
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

// enter adds a class of banks to the tour if it is named, or is above or under a named class. It
// does the same for the classes below, and reports whether it added any.
func (t *traversal) enter(bank int32, named bitset, under bool) bool {
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

// walk calls visit with the row of each class of banks, parents first, until visit returns false.
// It skips a class whose row would equal the row above.
func (t *traversal) walk(views []view, visit func(r *row) (more bool)) {
	r := &row{views: views, depth: -1}
	for _, v := range views {
		start := v.start()
		if v.apart != nil {
			start = r.stances[0][0]
		}
		r.stances = append(r.stances, slices.Repeat([]*classVerdict{start}, len(t.order)))
	}
	t.descend(0, r, visit)
}

// start returns the stance before any statement matches. nil: the view has no table.
func (v *view) start() *classVerdict {
	if v.table == nil {
		return nil
	}
	s := &classVerdict{}
	for _, ways := range v.table.sides {
		s.sides = append(s.sides, v.table.newSide(ways))
	}
	return s
}

func (t *traversal) descend(bank int32, r *row, visit func(r *row) (more bool)) (more bool) {
	call := r.views[0].call
	spend(call, rowSteps*len(t.order)*(r.depth+2))
	if ended(call) {
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

// row returns the row of a class of banks. nil: it equals the row above.
func (t *traversal) row(bank int32, above *row) *row {
	r := &row{
		views: above.views, bank: bank, depth: above.depth + 1,
		stances: slices.Clone(above.stances),
	}
	differs := bank == 0
	for i := range r.views {
		shut := slices.Contains(r.views[i].shut, t.banks.names[bank])
		r.shut = append(r.shut, shut)
		differs = differs || shut
	}
	r.fresh = slices.Repeat([]bool{differs}, len(t.order))
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

// bankRules holds the statements that name a class of banks.
type bankRules struct {
	bank    string
	named   []int32
	members bitset   // the same statements
	matches []*match // created on demand
	like    map[likeness]int32
}

// likeness is about equal for classes of actions that may share a stance: the stance in the row
// above, and the hash of the own statements that cover the class.
type likeness struct {
	before *classVerdict
	hash   uint64
}

func (t *traversal) own(bank int32) *bankRules {
	o := &bankRules{bank: t.banks.names[bank], named: t.naming[bank]}
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
func (t *traversal) add(r *row, view int, own *bankRules, above *row) (differs bool) {
	v, before := &r.views[view], above.stances[view]
	if v.table == nil {
		return false
	}
	stances := slices.Clone(before)
	r.stances[view] = stances
	own.like = map[likeness]int32{}
	for _, action := range t.chosen {
		switch covering := t.covering[action]; {
		case !own.members.meets(covering): // nothing more matches
		case before[action].denied(): // nothing more can change it
		case v.apart != nil && before[action] == above.stances[0][action] &&
			!own.members.meetsBoth(covering, v.apart):
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

// classVerdict returns the stance of a class of actions. When the same statements match a class
// that was visited before, it returns the stance of that class.
func (t *traversal) stance(
	v *view, action int32, own *bankRules, before, stances []*classVerdict,
) *classVerdict {
	covering := t.covering[action]
	key := likeness{before[action], own.members.hashWithin(covering)}
	if like, known := own.like[key]; !known {
		own.like[key] = action
	} else if own.members.sameWithin(covering, t.covering[like]) {
		return stances[like]
	}
	above := before[action]
	s := above
	spend(v.call, 4*len(own.named)+64)
	for n, i := range own.named {
		seat := &t.seats[i]
		if covering.has(i) && seat.tables&v.as != 0 && (v.without == nil || !v.without.has(i)) {
			s = s.with(own.match(n, seat, v.traced), seat.side, above)
		}
	}
	return s
}

func (o *bankRules) match(n int, s *slot, traced bool) *match {
	if o.matches[n] == nil {
		o.matches[n] = &match{place: s.place, bank: o.bank, sets: s.written().Parameters}
		if traced {
			o.matches[n].lost = map[string]string{}
		}
	}
	return o.matches[n]
}

// with adds a match to a side of the stance. If the stance is the shared one, it changes a copy.
func (s *classVerdict) with(m *match, side int, shared *classVerdict) *classVerdict {
	if s == shared {
		s = &classVerdict{slices.Clone(shared.sides)}
	}
	s.sides[side] = s.sides[side].with(m, shared.sides[side])
	return s
}

// with adds a match to the side. If the side is the shared one, it changes a copy.
func (s *side) with(m *match, shared *side) *side {
	if s == shared {
		own := *s
		own.matches, own.lists = slices.Clip(own.matches), slices.Clip(own.lists)
		own.winners = slices.Clone(own.winners)
		s = &own
	}
	s.add(m)
	return s
}

func (s *classVerdict) denied() bool { return slices.ContainsFunc(s.sides, (*side).denies) }

// rule returns the decision of a view for a class of actions.
func (r *row) rule(view int, action int32) (Outcome, Parameters) {
	s := r.stances[view][action]
	spend(r.views[view].call, ruleSteps)
	if s == nil {
		return ImplicitDeny, nil
	}
	switch outcome, _ := rule(s.sides); {
	case outcome != Allow:
		return outcome, nil
	case r.shut[view]:
		return ImplicitDeny, nil
	}
	for _, side := range s.sides {
		spend(r.views[view].call, mergeSteps*side.unmerged())
	}
	p := narrowed(s.sides)
	spend(r.views[view].call, 8*p.weight())
	return Allow, p
}
