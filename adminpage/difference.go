package adminpage

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// difference shows how a value became another. Texts that have words in common and lists of texts
// show the parts that changed, other values both values.
func difference(name string, from, to json.RawMessage) side {
	s := side{Name: name}
	if a, b, ok := both[[]string](from, to); ok {
		s.Pieces = elements(a, b)
	} else if a, b, ok := both[string](from, to); ok {
		s.Pieces = wordsOf(a, b)
	}
	if s.Pieces == nil {
		s.Block = true
		s.Pieces = append(whole("del", from), whole("ins", to)...)
	}
	return s
}

// both reads two values of one type.
func both[T any](from, to json.RawMessage) (a, b T, ok bool) {
	ok = string(from) != "null" && string(to) != "null" &&
		json.Unmarshal(from, &a) == nil && json.Unmarshal(to, &b) == nil
	return a, b, ok
}

// whole returns a value as one piece; none for a value that is absent.
func whole(kind string, value json.RawMessage) []piece {
	if value == nil {
		return nil
	}
	var text string
	if string(value) != "null" && json.Unmarshal(value, &text) == nil {
		return []piece{{kind, text}}
	}
	return []piece{{kind, string(value)}}
}

// Limits on what a comparison shows of that which is kept, on each side of a change.
const (
	keptElements = 3
	keptBytes    = 200
)

// elements shows a list of texts with those that were taken out and put in.
func elements(from, to []string) (pieces []piece) {
	align(from, to, 1, func(kind string, part []string) {
		skipped := len(part) - 2*keptElements
		for i, text := range part {
			if kind != "" || i < keptElements || i >= keptElements+skipped {
				pieces = append(pieces, piece{kind, text})
			} else if i == keptElements {
				pieces = append(pieces, piece{"skip", strconv.Itoa(skipped) + " elements"})
			}
		}
	})
	return pieces
}

// wordsOf shows a text with the words that changed. Nil: no words are kept.
func wordsOf(from, to string) (pieces []piece) {
	kept := false
	words := func(text string) []string { return strings.SplitAfter(text, " ") }
	align(words(from), words(to), 3, func(kind string, part []string) {
		pieces, kept = append(pieces, piece{kind, strings.Join(part, "")}), kept || kind == ""
	})
	if !kept {
		return nil
	}
	return nearChanges(pieces)
}

// nearChanges leaves out the bytes that are kept far from a change.
func nearChanges(pieces []piece) (near []piece) {
	for i, p := range pieces {
		start, end := keptBytes, len(p.Text)-keptBytes // what is between is left out
		if i == 0 {
			start = 0
		}
		if i == len(pieces)-1 {
			end = len(p.Text)
		}
		if p.Kind != "" || start >= end {
			near = append(near, p)
			continue
		}
		first, last := strings.ToValidUTF8(p.Text[:start], ""), strings.ToValidUTF8(p.Text[end:], "")
		skipped := strconv.Itoa(len(p.Text)-len(first)-len(last)) + " bytes"
		near = append(near, piece{"", first}, piece{"skip", skipped}, piece{"", last})
	}
	return slices.DeleteFunc(near, func(p piece) bool { return p.Text == "" })
}

// align calls add with the parts of two lists in turn: what was taken out ("del"), what was put in
// ("ins"), and what both have (""). After a difference, both are the same again where run elements
// in a row are equal. Its work is about linear, because a source chooses the lists.
func align(from, to []string, run int, add func(kind string, part []string)) {
	each := func(kind string, part []string) {
		if len(part) > 0 {
			add(kind, part)
		}
	}
	x, y := 0, 0 // what is before them was added
	for _, p := range append(sameRuns(from, to, run), pair{len(from), len(to)}) {
		if p.from < x || p.to < y {
			continue
		}
		for p.from > x && p.to > y && from[p.from-1] == to[p.to-1] {
			p = pair{p.from - 1, p.to - 1}
		}
		each("del", from[x:p.from])
		each("ins", to[y:p.to])
		for x, y = p.from, p.to; x < len(from) && y < len(to) && from[x] == to[y]; x++ {
			y++
		}
		each("", from[p.from:x])
	}
}

// pair is two places, one in each of two lists.
type pair struct{ from, to int }

// maxAligned is the longest list in which runs are looked for. Of longer ones, only the common start
// and end are kept.
const maxAligned = 50_000

// sameRuns returns where two lists have the same run, which each of them has once: the longest
// sequence that goes forward in both, after the start of both.
func sameRuns(from, to []string, length int) []pair {
	same := []pair{{0, 0}}
	if max(len(from), len(to)) > maxAligned {
		return same
	}
	before, after := runs(from, length), runs(to, length)
	var pairs []pair
	for i := range from {
		run := runAt(from, i, length)
		if at, has := after[run]; has && at >= 0 && before[run] >= 0 {
			pairs = append(pairs, pair{i, at})
		}
	}
	// ends has, for each number of pairs, the last pair of the sequence that ends first in to.
	var ends []int
	last := make([]int, len(pairs)) // the pair before each pair
	for n, p := range pairs {
		k, _ := slices.BinarySearchFunc(ends, p.to, func(n, to int) int { return pairs[n].to - to })
		if k == len(ends) {
			ends = append(ends, n)
		}
		if ends[k] = n; k > 0 {
			last[n] = ends[k-1]
		}
	}
	for k := len(ends) - 1; k > 0; k-- {
		ends[k-1] = last[ends[k]]
	}
	for _, n := range ends {
		same = append(same, pairs[n])
	}
	return same
}

// runAt returns the run from a place on; "": too few elements are left.
func runAt(list []string, i, length int) string {
	if i+length > len(list) {
		return ""
	}
	return strings.Join(list[i:i+length], "")
}

// runs returns where the runs of a list begin; -1: in several places.
func runs(list []string, length int) map[string]int {
	starts := map[string]int{"": -1}
	for i := range list {
		run := runAt(list, i, length)
		if _, seen := starts[run]; seen {
			i = -1
		}
		starts[run] = i
	}
	return starts
}
