package policy

import (
	"iter"
	"slices"
	"strings"
)

// classes sorts strings into classes: the same patterns cover all strings of a class. A string's
// class is the literal pattern equal to it, or else the longest prefix pattern that it begins with.
// Every string begins with the empty prefix, which is always a class.
type classes struct {
	end      string           // how every prefix ends, except the empty one
	literals map[string]int32 // the class of each literal
	prefixes map[string]int32 // the class of each prefix
	// sorted holds the prefixes, sorted. The class of a prefix is its index; literals come after.
	sorted []string
	// parents holds, for each prefix, the longest other prefix that it begins with. The parent of
	// the empty prefix is itself.
	parents []int32
	// names holds the pattern of each class. Read as a string, it is a member of its class.
	names []string
}

// classify returns the classes of patterns. Each is a literal, a prefix that ends with end and an
// asterisk, or "*".
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
	c := &classes{
		end:      end,
		sorted:   slices.Compact(prefixes),
		literals: map[string]int32{},
		prefixes: map[string]int32{},
	}
	for i, p := range c.sorted {
		c.prefixes[p] = c.name(p + "*")
		c.parents = append(c.parents, c.above(p, i-1))
	}
	for _, p := range slices.Compact(literals) {
		c.literals[p] = c.name(p)
	}
	return c
}

// name adds a class named by a pattern.
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
		if class, ok := c.prefixes[s[:i+len(c.end)]]; ok { // no matching prefix is longer
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

// named returns the class of a pattern. The pattern must be one of those passed to classify.
func (c *classes) named(pattern string) int32 {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return c.prefixes[prefix]
	}
	return c.literals[pattern]
}

// parent returns the class of the next shorter prefix that covers the strings of a class. The
// parent of the empty prefix is itself.
func (c *classes) parent(class int32) int32 {
	if int(class) < len(c.parents) {
		return c.parents[class]
	}
	return c.prefix(c.names[class])
}

// above returns the longest prefix that s begins with. i is the index of the greatest prefix not
// greater than s. s begins only with prefix i or with prefixes of prefix i, no longer than their
// common part.
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

// common returns the length of the common start of a and b, in bytes.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// upward yields a class, then the other classes whose patterns cover its strings, ending with the
// empty prefix.
func (c *classes) upward(class int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for yield(class) && class != 0 {
			class = c.parent(class)
		}
	}
}
