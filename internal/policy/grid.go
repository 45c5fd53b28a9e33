package policy

import (
	"cmp"
	"reflect"
	"slices"
)

// grid is all the classes of requests that a table, or two, tell apart. Along it, from the widest classes of banks to the narrowest,
// more and more statements match; what they come to is added to what those of the class above came to.
type grid struct {
	index
	seats []seat    // of the statements of the index; those of a table in gathering order
	above [][]int32 // of each class of actions, those whose patterns cover it, the closest first: itself
	order []int32   // the classes of actions, each behind those above it
	under [][]int32 // of each class of banks, those that it is the parent of
	// apart is the statements that only one of the two tables has, when without them both would say the same; else nil.
	apart bitset
}

// seat is where a statement stands.
type seat struct {
	place
	side   int   // of the table
	tables uint8 // the sum of those that have it: first, second
}

const first, second = 1, 2

// stance is what a table makes of the requests of a class. It is shared by all classes, and views, in which the same statements match, and
// not changed.
type stance struct{ sides []*side }

// newGrid returns the grid of tables, either of which may be nil, and of banks.
func newGrid(banks []string, one, other *table) *grid {
	g := &grid{}
	g.take(one, first, nil)
	if one.parallel(other) {
		g.take(other, second, one)
		g.apart = bitsets(1, len(g.seats))[0]
	} else {
		g.take(other, second, nil)
	}
	statements := make([]*Statement, len(g.seats))
	for i, s := range g.seats {
		statements[i] = s.written()
		if g.apart != nil && s.tables != first+second {
			g.apart.set(int32(i))
		}
	}
	g.index = newIndex(statements, banks)
	g.above, g.order = ladder(g.actions)
	g.under = make([][]int32, len(g.banks.names))
	for class := int32(1); int(class) < len(g.under); class++ {
		parent := g.banks.parent(class)
		g.under[parent] = append(g.under[parent], class)
	}
	return g
}

// parallel reports whether two tables say the same where the same statements match.
func (t *table) parallel(other *table) bool {
	alike := func(a, b []way) bool { return limits(a) == limits(b) }
	return t != nil && other != nil && slices.EqualFunc(t.sides, other.sides, alike) && !t.broken() && !other.broken()
}

func (t *table) broken() bool {
	return slices.ContainsFunc(t.sides, func(ways []way) bool { return broken(ways) != nil })
}

// take seats the statements of a table. One that like, whose statements are seated, has in the same place shares its seat.
func (g *grid) take(t *table, as uint8, like *table) {
	if t == nil {
		return
	}
	type role struct {
		policy   string
		side     int
		direct   bool
		priority int64
	}
	seats := map[role]int{} // the first seat of each way
	for i := range g.seats {
		if s := &g.seats[i]; like != nil && s.statement == 0 {
			seats[role{s.policy, s.side, s.direct, s.priority}] = i
		}
	}
	seated := len(g.seats)
	for side, ways := range t.sides {
		for i := range ways {
			w := &ways[i]
			at, found := seats[role{w.policy, side, w.direct, w.priority}]
			for n := range w.statements() {
				own := place{w, n}
				if found && at+n < seated && g.seats[at+n].twin(own) {
					g.seats[at+n].tables |= as
					continue
				}
				g.seats = append(g.seats, seat{own, side, as})
			}
		}
	}
}

// twin reports whether a statement is the same as the one that has a seat, which is that of its number in a way of the same rank, or one
// of a smaller number.
func (s *seat) twin(p place) bool {
	return s.statement == p.statement && (s.written() == p.written() || reflect.DeepEqual(s.written(), p.written()))
}

// ladder returns above and order of a grid.
func ladder(actions *classes) (above [][]int32, order []int32) {
	recalling, recalls := actions.literals[recall]
	for class := range int32(len(actions.names)) {
		covering := slices.Collect(actions.upward(class))
		if recalls && slices.Contains(coveredByRecall, actions.names[class]) {
			covering = slices.Insert(covering, 1, recalling)
		}
		above, order = append(above, covering), append(order, class)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(len(above[a]), len(above[b])) })
	return above, order
}
