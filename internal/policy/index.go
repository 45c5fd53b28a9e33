package policy

import (
	"iter"
	"math/bits"
	"slices"
)

// index finds the statements that match the requests of a class without looking at the others.
// Only the classes decide: a pattern covers the class that it names and all classes under it.
type index struct {
	actions, banks *classes
	covering       []bitset  // for each class of actions, the statements that cover it
	naming         [][]int32 // for each class of banks, the statements with the pattern of its name
}

// newIndex indexes statements by the classes of their patterns and of moreBanks. When the sets
// would exceed the budget of the call, it ends the call and indexes none.
func newIndex(call Call, statements []*Statement, moreBanks []string) index {
	var actions []string
	banks := slices.Clone(moreBanks)
	for _, st := range statements {
		actions, banks = append(actions, st.Actions...), append(banks, st.Banks...)
	}
	x := index{
		actions: classify(":", append(actions, coveredByRecall...)),
		banks:   classify("::", banks),
	}
	if !fits(call, len(x.actions.names), len(statements)) {
		statements = nil
	}
	x.covering = bitsets(len(x.actions.names), len(statements))
	x.naming = make([][]int32, len(x.banks.names))
	for i, st := range statements {
		for _, pattern := range st.Actions {
			for _, p := range meanings(pattern) {
				x.covering[x.actions.named(p)].set(int32(i))
			}
		}
		for _, pattern := range st.Banks {
			class := x.banks.named(pattern)
			x.naming[class] = append(x.naming[class], int32(i))
		}
	}
	for class := range x.covering { // the parent of a class comes before it
		x.covering[class].add(x.covering[x.actions.parent(int32(class))])
	}
	return x
}

// sieve finds sets that were seen before. Of two sets it may say by chance that both are new.
type sieve map[uint64]bitset

// fresh reports whether a set equals none that was seen before.
func (d sieve) fresh(b bitset) bool {
	hash := b.hashWithin(b)
	seen, known := d[hash]
	if !known {
		d[hash] = b
	}
	return !known || !slices.Equal(seen, b)
}

// bitset is a set of small numbers.
type bitset []uint64

// bitsets returns n empty sets of numbers below limit.
func bitsets(n, limit int) []bitset {
	width := (limit + 63) / 64
	words, sets := make(bitset, n*width), make([]bitset, n)
	for i := range sets {
		sets[i] = words[i*width : (i+1)*width : (i+1)*width]
	}
	return sets
}

func (b bitset) set(i int32)      { b[i>>6] |= 1 << (i & 63) }
func (b bitset) has(i int32) bool { return b[i>>6]&(1<<(i&63)) != 0 }

// fill adds every number that fits.
func (b bitset) fill() {
	for i := range b {
		b[i] = ^uint64(0)
	}
}

// all yields the numbers of the set, in order.
func (b bitset) all() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i, w := range b {
			for ; w != 0; w &= w - 1 {
				if !yield(int32(i<<6 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

func (b bitset) add(other bitset) {
	for i, w := range other {
		b[i] |= w
	}
}

// meets reports whether the sets have a number in common.
func (b bitset) meets(other bitset) bool {
	for i, w := range other {
		if b[i]&w != 0 {
			return true
		}
	}
	return false
}

// meetsBoth reports whether all three sets have a number in common.
func (b bitset) meetsBoth(one, other bitset) bool {
	for i, w := range b {
		if w&one[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// hashWithin returns a hash of the numbers that b and another set have in common.
func (b bitset) hashWithin(other bitset) uint64 {
	hash := uint64(len(b))
	for i, w := range b {
		hash = bits.RotateLeft64((hash^w&other[i])*odd1, 29)
	}
	return hash
}

// sameWithin reports whether two sets contain the same numbers of b.
func (b bitset) sameWithin(one, other bitset) bool {
	for i, w := range b {
		if (one[i]^other[i])&w != 0 {
			return false
		}
	}
	return true
}
