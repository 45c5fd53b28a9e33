package policy

import "math/bits"

// idsOf returns the names whose numbers are in the set, in order. The number of a name is first
// plus its index. n is the number of results.
func idsOf(names []string, in bitset, first, n int) []string {
	ids := make([]string, 0, n)
	for at, end := first, first+len(names); at < end; at++ {
		rest := in[at>>6] >> (at & 63)
		if rest == 0 {
			at |= 63
			continue
		}
		if at += bits.TrailingZeros64(rest); at < end {
			ids = append(ids, names[at-first])
		}
	}
	return ids
}
