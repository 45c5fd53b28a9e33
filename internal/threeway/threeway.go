// Package threeway compares and merges three versions of a JSON value: the base that both sides
// began with, ours and theirs.
//
// Objects are taken key by key, all other values whole. Two values are equal when their canonical
// forms (package jcs) are. A text is read once and each of its values is looked at a constant
// number of times, so time and memory grow with the length of the texts, whatever their nesting;
// sorting the keys of an object adds a logarithm.
package threeway

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/strictjson"
)

// The versions, as indexes of a trio.
const (
	base = iota
	ours
	theirs
)

// Bounds of what [Diff] returns, so that it is not much longer than the texts.
const (
	MaxChanges = 1000 // places
	MaxDepth   = 16   // keys in a path
	MaxPrefix  = 256  // bytes of a path that Diff still looks into
)

// Change is a place where the three versions are not all the same. A value is the part of the text
// that stands there; nil: that version has nothing there.
type Change struct {
	Path   string // a JSON pointer (RFC 6901)
	Base   json.RawMessage
	Ours   json.RawMessage
	Theirs json.RawMessage
}

// Diff returns the places where three versions differ, sorted by the keys of their paths, byte by
// byte. nil: they are equal. Where there would be more than [MaxChanges], or deeper ones than
// [MaxDepth], the objects above them stand for them, all of one depth.
//
// A text may be nil, for no value, and is otherwise valid JSON; if it is not, the error is a
// *strictjson.Error. When ctx ends, Diff returns its error.
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

// place is where versions differ.
type place struct {
	path   string
	values trio
}

// expand replaces the objects among places by those of their members that differ. nil: there is
// none, or there would be too many.
func expand(places []place) []place {
	var deeper []place
	expanded := false
	for _, p := range places {
		if !p.values.objects() || len(p.path) > MaxPrefix {
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

// Merge takes what one side alone has changed from that side. A value stands in the result as it is
// written there, and the keys of an object that was put together are sorted byte by byte. Where
// both have changed the same, and not alike, there is a clash and nothing is merged. Texts and
// errors are as those of [Diff]; merged is nil for no value, and shares no memory with the texts.
func Merge(ctx context.Context, base, ours, theirs json.RawMessage) (merged json.RawMessage, clash bool, err error) {
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

// merger writes what three versions come to.
type merger struct {
	versions
	out []byte
}

// merge appends the merged value; false: there is a clash.
func (m *merger) merge(values trio) bool {
	if side, one := values.pick(); one {
		m.out = append(m.out, m.text(values, side)...)
		return true
	}
	if !values.objects() {
		return false
	}
	m.out = append(m.out, '{')
	between := ""
	for key, member := range values.members() {
		if side, one := member.pick(); one && member[side].class == none {
			continue
		}
		m.out = append(jcs.AppendString(append(m.out, between...), key), ':')
		if !m.merge(member) {
			return false
		}
		between = ","
	}
	m.out = append(m.out, '}')
	return true
}

// trio is a value of each version.
type trio [3]value

func (t trio) equal() bool { return t[base].class == t[ours].class && t[ours].class == t[theirs].class }

// pick returns the version that a merge takes whole; false: both sides have changed the value, and
// not alike.
func (t trio) pick() (version int, one bool) {
	switch {
	case t[base].class == t[theirs].class:
		return ours, true
	case t[base].class == t[ours].class, t[ours].class == t[theirs].class:
		return theirs, true
	}
	return base, false
}

func (t trio) objects() bool {
	return t[base].object != nil && t[ours].object != nil && t[theirs].object != nil
}

// members yields the keys that any of three objects has, in their order.
func (t trio) members() iter.Seq2[string, trio] {
	return func(yield func(string, trio) bool) {
		rest := [3][]member{*t[base].object, *t[ours].object, *t[theirs].object}
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

// least returns the first key of three sorted lists; false: all are empty.
func least(lists [3][]member) (key string, more bool) {
	for _, list := range lists {
		if len(list) > 0 && (!more || list[0].key < key) {
			key, more = list[0].key, true
		}
	}
	return key, more
}
