package policy

import (
	"cmp"
	"reflect"
	"slices"
)

// classGrid holds all classes of requests that one or two tables distinguish. From the widest class
// of banks to the narrowest, more and more statements match. Their effect is added to the result of
// the class above.
type classGrid struct {
	index
	seats []slot // of the statements of the index; those of a table in gathering order
	// above holds, for each class of actions, the classes whose patterns cover it. The closest is
	// first: the class itself.
	above [][]int32
	order []int32   // the classes of actions, each after those above it
	under [][]int32 // for each class of banks, its children
	// apart holds the statements that only one of the two tables has. It is nil unless both tables
	// would decide the same without these statements.
	apart bitset
}

// slot is the position of a statement in the tables.
type slot struct {
	place
	side   int   // of the table
	tables uint8 // the sum of the tables that have it: first, second
}

const first, second = 1, 2

// classVerdict is the state of a table for the requests of a class. All classes and views with the
// same matching statements share one stance, so it does not change.
type classVerdict struct{ sides []*side }

// newGrid returns the grid of two tables and of banks. Either table may be nil.
func newGrid(call Call, banks []string, one, other *table) *classGrid {
	g, shares := &classGrid{}, one.parallel(other)
	g.take(one, first, false)
	g.take(other, second, shares)
	if shares {
		g.apart = bitsets(1, len(g.seats))[0]
	}
	statements := make([]*Statement, len(g.seats))
	for i, s := range g.seats {
		statements[i] = s.written()
		if g.apart != nil && s.tables != first+second {
			g.apart.set(int32(i))
		}
	}
	g.index = newIndex(call, statements, banks)
	g.above, g.order = ladder(g.actions)
	g.under = make([][]int32, len(g.banks.names))
	for class := int32(1); int(class) < len(g.under); class++ {
		parent := g.banks.parent(class)
		g.under[parent] = append(g.under[parent], class)
	}
	return g
}

// parallel reports whether two tables decide the same wherever the same statements match.
func (t *table) parallel(other *table) bool {
	alike := func(a, b []attachedBy) bool { return limits(a) == limits(b) }
	return t != nil && other != nil && slices.EqualFunc(t.sides, other.sides, alike) &&
		!t.broken() && !other.broken()
}

func (t *table) broken() bool {
	return slices.ContainsFunc(t.sides, func(ways []attachedBy) bool { return broken(ways) != nil })
}

// take gives each statement of a table a seat. If it shares, a statement with an equal one at the
// same position in the table that already has seats shares that seat.
func (g *classGrid) take(t *table, as uint8, shares bool) {
	if t == nil {
		return
	}
	type role struct {
		policy   string
		side     int
		direct   bool
		priority int64
		group    string // the way, if the document has its group
	}
	roleOf := func(side int, w *attachedBy) role {
		r := role{w.policy, side, w.direct, w.priority, ""}
		if w.group {
			r.group = w.granted
		}
		return r
	}
	seats := map[role]int{} // the first seat of each way
	for i := range g.seats {
		if s := &g.seats[i]; shares && s.statement == 0 {
			seats[roleOf(s.side, s.attachedBy)] = i
		}
	}
	seated := len(g.seats)
	for side, ways := range t.sides {
		for i := range ways {
			w := &ways[i]
			at, found := seats[roleOf(side, w)]
			for n := range w.statements() {
				own := place{w, n}
				if found && at+n < seated && g.seats[at+n].twin(own) {
					g.seats[at+n].tables |= as
					continue
				}
				g.seats = append(g.seats, slot{own, side, as})
			}
		}
	}
}

// twin reports whether a statement equals the one in the seat. The seat belongs to a way of the
// same rank, at the statement's number or before it.
func (s *slot) twin(p place) bool {
	return s.statement == p.statement &&
		(s.written() == p.written() || reflect.DeepEqual(s.written(), p.written()))
}

// ladder returns the fields above and order of a grid.
func ladder(actions *classes) (above [][]int32, order []int32) {
	recalling, recalls := actions.literals[recall]
	for class := range int32(len(actions.names)) {
		covering := slices.Collect(actions.upward(class))
		if recalls && slices.Contains(coveredByRecall, actions.names[class]) {
			covering = slices.Insert(covering, 1, recalling)
		}
		above, order = append(above, covering), append(order, class)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(len(above[a]), len(above[b]))
	})
	return above, order
}
