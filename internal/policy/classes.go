package policy

import (
	"iter"
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
	names    []string         // of each class the pattern, which read as a string is a member of the class
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
	return c.prefix(s)
}

// prefix returns the class of the longest prefix that s begins with.
func (c *classes) prefix(s string) int32 {
	i, found := slices.BinarySearch(c.sorted, s)
	if found {
		return int32(i)
	}
	return c.above(s, i-1)
}

// named returns the class that has the name of a pattern, which was among those that were classified.
func (c *classes) named(pattern string) int32 {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return c.prefixes[prefix]
	}
	return c.literals[pattern]
}

// parent returns the class of the prefix that covers the strings of a class next, after its own pattern; that of the empty
// prefix has itself.
func (c *classes) parent(class int32) int32 {
	if int(class) < len(c.parents) {
		return c.parents[class]
	}
	return c.prefix(c.names[class])
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

// upward yields a class, and then those whose patterns cover its strings, too, down to the empty prefix's.
func (c *classes) upward(class int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for yield(class) && class != 0 {
			class = c.parent(class)
		}
	}
}
