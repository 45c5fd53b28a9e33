// Package merge3 compares and merges three versions of a JSON value: the common base, ours and
// theirs.
//
// It compares objects key by key, and all other values whole. Two values are equal when their
// canonical forms (package jcs) are equal. The package reads a text once and looks at each value a
// constant number of times. So time and memory grow with the length of the texts, whatever their
// nesting. Only sorting the keys of an object adds a logarithm.
package merge3

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
)

// The versions, as indexes of a trio.
const (
	base = iota
	ours
	theirs
)

// Limits of the result of [Diff], so that it is not much longer than the texts.
const (
	MaxChanges = 1000 // places
	MaxDepth   = 16   // keys in a path
	MaxPrefix  = 256  // bytes of the longest path that Diff descends from
)

// Change is a place where the three versions are not all equal. Each value is the part of its text
// at that place. nil: the version has no value there.
type Change struct {
	Path   string // a JSON pointer (RFC 6901)
	Base   json.RawMessage
	Ours   json.RawMessage
	Theirs json.RawMessage
}

// Diff returns the places where three versions differ, sorted by the keys of their paths, byte by
// byte. nil: the versions are equal. When there are more than [MaxChanges] places, or places deeper
// than [MaxDepth], Diff returns the objects above them instead, all of one depth.
//
// A text is valid JSON, or nil for an absent value. Diff returns a *strictjson.Error for invalid
// JSON. When ctx ends, Diff returns its error.
func Diff(ctx context.Context, base, ours, theirs json.RawMessage) ([]Change, error) {
	v, root, err := read(ctx, base, ours, theirs)
	if err != nil || root.equal() {
		return nil, err
	}
	places := []place{{values: root}}
	for range MaxDepth {
		deeper := expand(places)
		if deeper == nil {
			break
		}
		places = deeper
	}
	changes := make([]Change, len(places))
	for i, p := range places {
		changes[i] = Change{p.path, v.raw(p.values, 0), v.raw(p.values, 1), v.raw(p.values, 2)}
	}
	return changes, nil
}

// place is a path where the versions differ.
type place struct {
	path   string
	values trio
}

// expand replaces each object among places by its members that differ. It returns nil when places
// has no object to expand, or when there would be too many places.
func expand(places []place) []place {
	var deeper []place
	expanded := false
	for _, p := range places {
		if !p.values.objects(base, ours, theirs) || len(p.path) > MaxPrefix {
			deeper = append(deeper, p)
			continue
		}
		expanded = true
		for key, values := range p.values.members() {
			if values.equal() {
				continue
			}
			if len(deeper) == MaxChanges {
				return nil
			}
			deeper = append(deeper, place{p.path + "/" + strictjson.Token(key), values})
		}
	}
	if !expanded || len(deeper) > MaxChanges {
		return nil
	}
	return deeper
}

// Merge merges ours and theirs: it takes each value that only one side changed from that side. When
// both sides changed a value differently, Merge reports a clash and merges nothing.
//
// The result has each value as its text writes it. An object that both sides have keeps the order
// of ours, and the keys that only theirs has follow in the order of theirs. Lists are taken whole,
// with the order in them. Texts and errors are as in [Diff]. merged is nil for an absent value, and
// shares no memory with the texts.
func Merge(
	ctx context.Context,
	base, ours, theirs json.RawMessage,
) (merged json.RawMessage, clash bool, err error) {
	v, root, err := read(ctx, base, ours, theirs)
	if err != nil {
		return nil, false, err
	}
	m := merger{versions: v}
	if !m.merge(root) {
		return nil, true, nil
	}
	return m.out, false, nil
}

// merger writes the merge of three versions.
type merger struct {
	versions
	out []byte
}

// merge appends the merged value. It returns false on a clash.
func (m *merger) merge(values trio) bool {
	side, one := values.pick()
	switch {
	// theirs may have another order of keys than ours.
	case one && (side == ours || !values.objects(ours, theirs)):
		m.out = append(m.out, m.text(values, side)...)
		return true
	case !one && !values.objects(base, ours, theirs):
		return false
	}
	m.out = append(m.out, '{')
	between := ""
	for _, p := range values.ordered() {
		if side, one := p.values.pick(); one && p.values[side].class == none {
			continue
		}
		m.out = append(jcs.AppendString(append(m.out, between...), p.path), ':')
		if !m.merge(p.values) {
			return false
		}
		between = ","
	}
	m.out = append(m.out, '}')
	return true
}

// trio holds one value of each version.
type trio [3]value

func (t trio) equal() bool {
	return t[base].class == t[ours].class && t[ours].class == t[theirs].class
}

// pick returns the version that a merge takes whole. It returns false when both sides changed the
// value differently.
func (t trio) pick() (version int, one bool) {
	switch {
	case t[base].class == t[theirs].class:
		return ours, true
	case t[base].class == t[ours].class, t[ours].class == t[theirs].class:
		return theirs, true
	}
	return base, false
}

// objects reports whether the values of these versions are objects.
func (t trio) objects(versions ...int) bool {
	return !slices.ContainsFunc(versions, func(i int) bool { return t[i].object == nil })
}

// ordered returns the members of objects, with their key as the path: those of ours in the order of
// its text, then the others of theirs in the order of its text. Others of base come last.
func (t trio) ordered() []place {
	list := make([]place, 0, len(*t[ours].object)+len(*t[theirs].object))
	for key, values := range t.members() {
		list = append(list, place{key, values})
	}
	slices.SortFunc(list, func(a, b place) int {
		for _, version := range []int{ours, theirs} {
			x, y := a.values[version], b.values[version]
			switch {
			case x.class == none && y.class == none:
				continue
			case x.class == none:
				return 1
			case y.class == none:
				return -1
			}
			return cmp.Compare(x.from, y.from)
		}
		return 0
	})
	return list
}

// members yields, sorted byte by byte, every key that at least one of the objects has. A value that
// is no object has none.
func (t trio) members() iter.Seq2[string, trio] {
	return func(yield func(string, trio) bool) {
		var rest [3][]member
		for i := range rest {
			if t[i].object != nil {
				rest[i] = *t[i].object
			}
		}
		for {
			key, more := least(rest)
			if !more {
				return
			}
			var of trio
			for i := range rest {
				if len(rest[i]) > 0 && rest[i][0].key == key {
					of[i], rest[i] = rest[i][0].value, rest[i][1:]
				}
			}
			if !yield(key, of) {
				return
			}
		}
	}
}

// least returns the smallest key of three sorted lists, or false when all are empty.
func least(lists [3][]member) (key string, more bool) {
	for _, list := range lists {
		if len(list) > 0 && (!more || list[0].key < key) {
			key, more = list[0].key, true
		}
	}
	return key, more
}
