package policy

import (
	"cmp"
	"slices"
	"strings"
)

// region states something about a class of requests, given by its patterns. It holds for all
// requests that the patterns cover and no closer region covers.
type region struct{ action, bank, what int32 }

// regions describes what holds for each class in as few regions as it can. 0 is what holds where
// there is no region.
//
// It goes from the widest class to the narrowest. It gives a class its own region when the closest
// regions that cover the class disagree, or say something else. It calls take with each region,
// until take returns false.
func (t *traversal) regions(
	views []view, what func(r *row, action int32) int32, take func(region) (more bool),
) {
	var holds [][]int32 // by row
	m := regions{above: t.above}
	t.walk(views, func(r *row) bool {
		holds = append(holds[:r.depth], make([]int32, len(t.order)))
		m.open(r.depth)
		known := map[[2]*classVerdict]int32{} // of this row: classes with equal stances agree
		for _, action := range t.chosen {
			if ended(views[0].call) {
				return false
			}
			w := &holds[r.depth][action]
			if !r.fresh[action] {
				*w = holds[r.depth-1][action]
			} else {
				key := [2]*classVerdict{r.stances[0][action], r.stances[len(views)-1][action]}
				var again bool
				if *w, again = known[key]; !again {
					*w = what(r, action)
					known[key] = *w
				}
			}
			if m.put(action, *w) && !take(region{action, r.bank, *w}) {
				return false
			}
		}
		return true
	})
}

// sort sorts regions by action and bank.
func (t *traversal) sort(found []region) {
	slices.SortFunc(found, func(a, b region) int {
		return cmp.Or(
			strings.Compare(t.actions.names[a.action], t.actions.names[b.action]),
			strings.Compare(t.banks.names[a.bank], t.banks.names[b.bank]),
		)
	})
}

// regions holds the regions that cover a class of banks.
type regions struct {
	above [][]int32
	// rows has a row for each class of banks above, the farthest first. By class of actions it
	// holds what the class's region says, plus 1; 0: the class has no region.
	rows [][]int32
}

// open moves to a class of banks under the first depth rows.
func (m *regions) open(depth int) {
	m.rows = append(m.rows[:depth], make([]int32, len(m.above)))
}

// put makes a region for a class of actions if it needs one, and reports whether it did.
func (m *regions) put(action, what int32) bool {
	if covered, agreed := m.covered(m.above[action]); agreed && covered == what {
		return false
	}
	m.rows[len(m.rows)-1][action] = what + 1
	return true
}

// covered returns what the closest regions say, and whether they agree.
func (m *regions) covered(actions []int32) (what int32, agreed bool) {
	found := false
	for i := len(m.rows) - 1; i >= 0; i-- {
		// A region farther away by bank counts only if it is closer by action.
		for near, action := range actions {
			if w := m.rows[i][action] - 1; w >= 0 {
				if found && w != what {
					return 0, false
				}
				what, found, actions = w, true, actions[:near]
				break
			}
		}
	}
	return what, true
}

// registry numbers values by key, from 1. Equal keys get the same number.
type registry[V any] struct {
	ids    map[string]int32
	values []V
}

func (r *registry[V]) id(key []byte, value func() V) int32 {
	id, known := r.ids[string(key)]
	if !known {
		if r.ids == nil {
			r.ids = map[string]int32{}
		}
		r.values = append(r.values, value())
		id = int32(len(r.values))
		r.ids[string(key)] = id
	}
	return id
}
