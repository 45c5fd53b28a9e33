// Package strictjson reads JSON from outside in one pass. It refuses what encoding/json lets
// through (duplicate keys, keys in another case, half surrogate pairs, bad UTF-8). Its errors say
// where the document is wrong.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// deepest is the deepest nesting that encoding/json reads. It caps every caller's limit, so the
// recursion here is bounded.
const deepest = 10_000

// Error says where a document is wrong, and why.
//
// Pointer is an RFC 6901 JSON pointer; "" is the whole document. A document that is not JSON has no
// parts: its Pointer is "" and Detail names the offset. An error in a key that is not valid text
// points at the key's object. Detail is a sentence fragment for a person, such as "must be a
// string".
type Error struct {
	Pointer, Detail string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return "document: " + e.Detail
	}
	return e.Pointer + ": " + e.Detail
}

// Compact checks data and returns a copy without insignificant white space. Strings, numbers and
// the order of keys stay byte for byte. The copy never shares memory with data.
//
// Every error is an *Error. Compact refuses:
//   - empty input, a byte order mark, and everything that RFC 8259 does not allow
//   - invalid UTF-8, and a \u escape that is half of a surrogate pair
//   - two keys of one object that are equal once unescaped
//   - an object that has more than 262,144 keys, together with the keys of the objects around it
//   - arrays and objects nested deeper than maxDepth
//
// A scalar has depth 0. A maxDepth above 10,000 counts as 10,000.
func Compact(data []byte, maxDepth int) ([]byte, error) {
	s := newScanner(data, maxDepth)
	if err := s.scan(opaque); err != nil {
		return nil, err
	}
	return s.out, nil
}

// Unmarshal checks data as Compact does and against the type of v, then decodes it into v. v must
// be a non-nil pointer. When Unmarshal refuses data, it returns an *Error and leaves v unchanged.
// Any other error means that v itself cannot be decoded into.
//
// An integer is any number whose value is one, such as 1.0 or 1e1, as in JSON Schema.
//
// A key of a struct must be the name in a json tag, case included. A null member counts as absent:
// the field keeps its value, also when it is a json.RawMessage. Only Optional and other types with
// their own UnmarshalJSON see null. An array or map refuses a null element unless its elements are
// pointers or opaque: a null could not be told from a zero value afterwards.
//
// Opaque types are json.RawMessage, any, and types with their own UnmarshalJSON. A json.RawMessage
// gets the compacted bytes and shares no memory with data. An error of UnmarshalJSON becomes the
// Detail. Embedded structs, arrays of fixed length and []byte are not supported.
func Unmarshal(data []byte, maxDepth int, v any) error {
	return UnmarshalWithin(data, maxDepth, math.MaxInt, v)
}

// UnmarshalWithin is Unmarshal with a limit on the array elements of the whole document. Elements
// inside opaque values do not count. The limit exists because an element of a few bytes may take a
// hundred times as many once decoded.
func UnmarshalWithin(data []byte, maxDepth, maxElements int, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("strictjson: decode into %T: not a non-nil pointer", v)
	}
	root, err := slotFor(p.Type().Elem())
	if err != nil {
		return fmt.Errorf("strictjson: decode into %T: %w", v, err)
	}
	s := newScanner(data, maxDepth)
	s.elements = maxElements
	s.cutting = p.Elem().Kind() == reflect.Struct && !root.seesNull
	if bad := s.scan(root); bad != nil {
		return bad
	}
	if err := json.Unmarshal(s.out, v); err != nil {
		return fmt.Errorf("strictjson: decode into %T: %w", v, err)
	}
	for _, c := range s.cuts {
		c.into(p.Elem().Field(c.field))
	}
	return nil
}

// Optional is a field of a patch. It distinguishes absent (the zero Optional), null (Set and Null)
// and a value (Set). Unmarshal checks its values like any T.
type Optional[T any] struct {
	Set, Null bool
	Value     T
}

// UnmarshalJSON sets o. encoding/json calls it only when the key is present.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{Set: true}
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

func (Optional[T]) valueType() reflect.Type { return reflect.TypeFor[T]() }

// optional is implemented by every Optional, whatever its T.
type optional interface{ valueType() reflect.Type }

func newScanner(data []byte, maxDepth int) *scanner {
	return &scanner{in: data, out: make([]byte, 0, len(data)), limit: min(maxDepth, deepest)}
}

func (s *scanner) scan(root *slot) *Error {
	err := s.document(root)
	if err != nil && !s.broken {
		err.Pointer = pointer(s.path)
	}
	return err
}

func (s *scanner) document(root *slot) *Error {
	if bytes.HasPrefix(s.in, []byte("\ufeff")) {
		return &Error{Detail: "must not begin with a byte order mark"}
	}
	s.space()
	if s.pos == len(s.in) {
		return &Error{Detail: "must not be empty"}
	}
	if err := s.value(root); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.in) {
		return s.invalid("something follows its end at offset %d", s.pos)
	}
	s.flush()
	return nil
}

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// Token returns a key as it stands in a JSON pointer (RFC 6901, section 3).
func Token(key string) string { return escapes.Replace(key) }

// pointer joins tokens, which come innermost first.
func pointer(path []string) string {
	var b strings.Builder
	for i := len(path) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(Token(path[i]))
	}
	return b.String()
}
