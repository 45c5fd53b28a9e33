package accessindex

import (
	"math/bits"
	"slices"
	"strings"
)

// numbers gives rows of one kind numbers by their ids. A number is used again after release.
type numbers[R any] struct {
	ids  []string
	rows []R
	of   map[string]int32
	free []int32
}

// find returns the number of an id.
func (n *numbers[R]) find(id string) (int32, bool) {
	at, found := n.of[id]
	return at, found
}

// number returns the number of an id, and gives it one if it has none. It copies the id: the
// caller's may be a part of a long text.
func (n *numbers[R]) number(id string) int32 {
	if at, found := n.of[id]; found {
		return at
	}
	id = strings.Clone(id)
	at := int32(len(n.ids))
	if last := len(n.free) - 1; last >= 0 {
		at, n.free = n.free[last], n.free[:last]
		n.ids[at] = id
	} else {
		n.ids, n.rows = append(n.ids, id), append(n.rows, *new(R))
	}
	if n.of == nil {
		n.of = map[string]int32{}
	}
	n.of[id] = at
	return at
}

func (n *numbers[R]) release(at int32) {
	delete(n.of, n.ids[at])
	n.ids[at], n.rows[at] = "", *new(R)
	n.free = append(n.free, at)
}

// set is a set of numbers.
type set []uint64

func (s *set) add(i int32) {
	if need := int(i)>>6 + 1; need > len(*s) {
		*s = append(*s, make([]uint64, need-len(*s))...)
	}
	(*s)[i>>6] |= 1 << (i & 63)
}

func (s *set) addAll(all []int32) {
	for _, i := range all {
		s.add(i)
	}
}

func (s set) remove(i int32) {
	if s.has(i) {
		s[i>>6] &^= 1 << (i & 63)
	}
}

func (s set) has(i int32) bool { return int(i)>>6 < len(s) && s[i>>6]&(1<<(i&63)) != 0 }

// count returns how many numbers are in the set.
func (s set) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// each calls do with each number, in order.
func (s set) each(do func(i int32)) {
	for at, w := range s {
		for ; w != 0; w &= w - 1 {
			do(int32(at<<6 + bits.TrailingZeros64(w)))
		}
	}
}

// order holds numbers in the byte order of their ids. It is cut into chunks, so that a new id moves
// few others.
type order [][]int32

const chunkSize = 1024

// place returns where an id is, or where it belongs. The order is not empty.
func (o order) place(ids []string, id string) (chunk, at int) {
	compare := func(n int32, id string) int { return strings.Compare(ids[n], id) }
	if last := o[len(o)-1]; ids[last[len(last)-1]] < id {
		return len(o) - 1, len(last)
	}
	chunk, found := slices.BinarySearchFunc(o, id, func(c []int32, id string) int {
		return compare(c[0], id)
	})
	if found || chunk == 0 {
		return chunk, 0
	}
	at, _ = slices.BinarySearchFunc(o[chunk-1], id, compare)
	return chunk - 1, at
}

// add adds a number. Ids that come in order fill chunk after chunk.
func (o *order) add(ids []string, n int32) {
	if len(*o) == 0 {
		*o = order{{n}}
		return
	}
	c, at := o.place(ids, ids[n])
	switch chunk := (*o)[c]; {
	case len(chunk) < chunkSize:
		(*o)[c] = slices.Insert(chunk, at, n)
	case at == chunkSize && c == len(*o)-1:
		*o = slices.Insert(*o, c+1, []int32{n})
	default:
		half := slices.Clone(chunk[chunkSize/2:])
		(*o)[c] = chunk[:chunkSize/2]
		*o = slices.Insert(*o, c+1, half)
		o.add(ids, n)
	}
}

// remove removes a number, whose id ids still has.
func (o *order) remove(ids []string, n int32) {
	c, at := o.place(ids, ids[n])
	(*o)[c] = slices.Delete((*o)[c], at, at+1)
	if len((*o)[c]) == 0 {
		*o = slices.Delete(*o, c, c+1)
	}
}

// list returns the ids of a set in order, never nil. It sorts a small set, and walks all numbers
// for a large one.
func (o order) list(ids []string, in set) []string {
	found := make([]string, 0, in.count())
	if len(found) == cap(found) {
		return found
	}
	if cap(found) < len(ids)/walkFrom {
		in.each(func(n int32) { found = append(found, ids[n]) })
		slices.Sort(found)
		return found
	}
	for _, chunk := range o {
		for _, n := range chunk {
			if in.has(n) {
				found = append(found, ids[n])
			}
		}
	}
	return found
}

// walkFrom: a set of more than one in so many numbers is listed faster by a walk than by a sort.
const walkFrom = 256
