// Package jcs writes JSON in the canonical form of RFC 8785. Documents with the same content have
// the same digest, whatever their formatting.
//
// It differs from the RFC in one point: a number that a double cannot hold stays as written instead
// of losing digits. So a digest never hides a difference in value. (1e400 and 10e399 are equal, but
// no double holds them: their canonical forms differ, which errs on the safe side.)
package jcs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/extsvc/svc/internal/strictjson"
)

// deepest is the deepest nesting that Canonical reads. It bounds the recursion.
const deepest = 1000

// Canonical returns the RFC 8785 form of data. data must be valid JSON by the rules of
// strictjson.Compact, at most 1,000 levels deep; otherwise the error is a *strictjson.Error.
//
// The time is linear in the length of data and, at worst, in its depth: an object whose keys are
// not sorted is copied once, with its content, when it ends.
func Canonical(data []byte) ([]byte, error) {
	return Append(nil, data)
}

// Append appends the result of Canonical to dst. On an error it returns dst unchanged.
func Append(dst, data []byte) ([]byte, error) {
	in, err := strictjson.Compact(data, deepest)
	if err != nil {
		return dst, err
	}
	w := writer{in: in, out: slices.Grow(dst, len(in))}
	w.value()
	return w.out, nil
}

// Equal compares canonical forms. Equal bytes need none. Invalid JSON equals only the same bytes.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	canonicalA, err := Canonical(a)
	if err != nil {
		return false
	}
	canonicalB, err := Canonical(b)
	return err == nil && bytes.Equal(canonicalA, canonicalB)
}

// Digest returns "sha256:" and the hex SHA-256 of a text. Canonical texts with the same content
// have the same digest.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Bounded returns the canonical form of a JSON document. In place of a form of more than most bytes
// it returns {"bytes":N,"sha256":"…"}: the length and hex SHA-256 of the form. A document without a
// canonical form is described like that as it stands.
func Bounded(document []byte, most int) []byte {
	form, err := Canonical(document)
	if err == nil && len(form) <= most {
		return form
	} else if err != nil {
		form = document
	}
	return fmt.Appendf(nil, `{"bytes":%d,"sha256":"%x"}`, len(form), sha256.Sum256(form))
}

// A writer turns in into its canonical form. in must be valid JSON without white space.
type writer struct {
	in, out []byte
	pos     int      // the next byte of in
	members []member // of all open objects; the innermost object's are last
	scratch []byte
}

// member is out[from:to], its comma included.
type member struct {
	key      string
	from, to int
}

func (w *writer) value() {
	switch c := w.in[w.pos]; {
	case c == '{':
		w.object()
	case c == '[':
		w.array()
	case c == '"':
		w.out = w.text(w.out)
	case c == '-' || '0' <= c && c <= '9':
		w.out = AppendNumber(w.out, w.word())
	default:
		w.out = append(w.out, w.word()...)
	}
}

func (w *writer) array() {
	w.out = append(w.out, '[')
	for w.pos++; w.in[w.pos] != ']'; {
		w.value()
		if w.in[w.pos] == ',' {
			w.out = append(w.out, ',')
			w.pos++
		}
	}
	w.out = append(w.out, ']')
	w.pos++
}

// object writes the members in their order, each with a comma after it so that they can change
// places. It sorts them at the end.
func (w *writer) object() {
	w.out = append(w.out, '{')
	start, first := len(w.out), len(w.members)
	for w.pos++; w.in[w.pos] != '}'; {
		from := len(w.out)
		w.out = w.text(w.out)
		key := Unquote(w.out[from:])
		w.out = append(w.out, ':')
		w.pos++
		w.value()
		w.out = append(w.out, ',')
		w.members = append(w.members, member{key, from, len(w.out)})
		if w.in[w.pos] == ',' {
			w.pos++
		}
	}
	w.sort(start, w.members[first:])
	w.members = w.members[:first]
	if end := len(w.out); end > start {
		w.out = w.out[:end-1]
	}
	w.out = append(w.out, '}')
	w.pos++
}

// sort puts the members, which begin at out[start], into the RFC's order.
func (w *writer) sort(start int, members []member) {
	byKey := func(a, b member) int { return compare(a.key, b.key) }
	if slices.IsSortedFunc(members, byKey) {
		return
	}
	slices.SortFunc(members, byKey)
	w.scratch = append(w.scratch[:0], w.out[start:]...)
	w.out = w.out[:start]
	for _, m := range members {
		w.out = append(w.out, w.scratch[m.from-start:m.to-start]...)
	}
}

// text reads a string and appends its canonical form.
func (w *writer) text(dst []byte) []byte {
	start, escaped := w.pos, false
	for w.pos++; w.in[w.pos] != '"'; w.pos++ {
		if w.in[w.pos] == '\\' {
			escaped = true
			w.pos++
		}
	}
	w.pos++
	lit := w.in[start:w.pos]
	if !escaped {
		return append(dst, lit...)
	}
	return AppendString(dst, Unquote(lit))
}

// Unquote returns the text that lit, a valid JSON string, stands for.
func Unquote[T string | []byte](lit T) string {
	for i := range len(lit) {
		if lit[i] == '\\' {
			var s string
			_ = json.Unmarshal([]byte(lit), &s) // cannot fail: strictjson has checked it
			return s
		}
	}
	return string(lit[1 : len(lit)-1])
}

// word reads a number, true, false or null.
func (w *writer) word() []byte {
	start := w.pos
	for w.pos < len(w.in) && w.in[w.pos] != ',' && w.in[w.pos] != ']' && w.in[w.pos] != '}' {
		w.pos++
	}
	return w.in[start:w.pos]
}
