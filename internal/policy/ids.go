package policy

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// IDs are sorted ids that nobody can change, because whoever asks the same is given the same ones. The zero value is empty. They may be
// read concurrently.
type IDs struct {
	names []string // sorted; those that are not in the list are among them
	in    bitset   // which are, by their numbers
	first int      // the number of the first
	n     int
}

// NewIDs returns a list of ids, which it sorts and keeps.
func NewIDs(ids []string) IDs {
	slices.Sort(ids)
	in := bitsets(1, len(ids))[0]
	in.fill()
	return IDs{ids, in, 0, len(ids)}
}

// Len is how many there are.
func (l IDs) Len() int { return l.n }

// Contains reports whether an id is in the list.
func (l IDs) Contains(id string) bool {
	i, found := slices.BinarySearch(l.names, id)
	return found && l.in.has(int32(l.first+i))
}

// All yields the ids in their order.
func (l IDs) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for at, end := l.first, l.first+len(l.names); at < end; at++ {
			rest := l.in[at>>6] >> (at & 63)
			if rest == 0 {
				at |= 63
				continue
			}
			if at += bits.TrailingZeros64(rest); at < end && !yield(l.names[at-l.first]) {
				return
			}
		}
	}
}

// Slice returns the ids in their order, as a list of the caller's own; never nil.
func (l IDs) Slice() []string { return slices.AppendSeq(make([]string, 0, l.n), l.All()) }

// String shows the ids as a list.
func (l IDs) String() string { return fmt.Sprint(l.Slice()) }

// MarshalJSON implements [json.Marshaler]: an array, never null.
func (l IDs) MarshalJSON() ([]byte, error) { return json.Marshal(l.Slice()) }
