package policy

import (
	"slices"
	"strings"
)

// classes tells strings apart as far as a set of patterns does: the same patterns cover all strings of a class. A string is in
// the class of the literal pattern that it is, else of the longest prefix pattern that it begins with; every string begins
// with the empty prefix, whether a pattern has it or not.
type classes struct {
	end      string           // how prefixes end, the empty one apart
	literals map[string]int32 // the class of each literal
	prefixes map[string]int32 // the class of each prefix
	sorted   []string         // the prefixes, sorted; their classes are their indexes, the literals' follow
	parents  []int32          // for each prefix the longest other one that it begins with; the empty prefix has itself
	names    []string         // of each class the pattern
}

// classify returns the classes of patterns that are literal, or a prefix that ends with end and an asterisk, or "*".
func classify(end string, patterns []string) *classes {
	prefixes, literals := []string{""}, []string{}
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			prefixes = append(prefixes, prefix)
		} else {
			literals = append(literals, p)
		}
	}
	slices.Sort(prefixes)
	slices.Sort(literals)
	c := &classes{end: end, sorted: slices.Compact(prefixes), literals: map[string]int32{}, prefixes: map[string]int32{}}
	for i, p := range c.sorted {
		c.prefixes[p] = c.name(p + "*")
		c.parents = append(c.parents, c.above(p, i-1))
	}
	for _, p := range slices.Compact(literals) {
		c.literals[p] = c.name(p)
	}
	return c
}

// name gives the next class its pattern.
func (c *classes) name(pattern string) int32 {
	c.names = append(c.names, pattern)
	return int32(len(c.names) - 1)
}

// of returns the class of a string, in time linear in its length.
func (c *classes) of(s string) int32 {
	if class, ok := c.literals[s]; ok {
		return class
	}
	if i := strings.LastIndex(s, c.end); i >= 0 {
		if class, ok := c.prefixes[s[:i+len(c.end)]]; ok { // none can be longer
			return class
		}
	}
	i, found := slices.BinarySearch(c.sorted, s)
	if found {
		return int32(i)
	}
	return c.above(s, i-1)
}

// above returns the longest prefix that s begins with, when i is the greatest that is not greater than s: s begins with none
// but i and those that i begins with, as far as the two are the same.
func (c *classes) above(s string, i int) int32 {
	if i < 0 {
		return 0
	}
	same := common(s, c.sorted[i])
	for len(c.sorted[i]) > same {
		i = int(c.parents[i])
	}
	return int32(i)
}

// common returns how many bytes a and b have in common at their start.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
