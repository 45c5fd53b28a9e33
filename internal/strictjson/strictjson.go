// Package strictjson reads JSON that comes from outside: one pass that refuses
// what encoding/json lets through (duplicate keys, keys in another case, half
// surrogate pairs, bad UTF-8) and says where it was.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// deepest is the nesting encoding/json itself stops at. No caller's limit goes
// beyond it, so the recursion here is bounded whatever it is given.
const deepest = 10_000

// Error says where a document is wrong and why.
//
// Pointer is an RFC 6901 JSON pointer; "" is the whole document. A document that
// is not JSON has no parts to point at: its Pointer is "" and Detail names the
// offset. A key that is not valid text is reported at the object that has it.
// Detail is a sentence fragment for a person, such as "must be a string".
type Error struct{ Pointer, Detail string }

func (e *Error) Error() string {
	if e.Pointer == "" {
		return "document: " + e.Detail
	}
	return e.Pointer + ": " + e.Detail
}

// Compact checks data and returns a copy without insignificant white space;
// strings, numbers and the order of keys stay byte for byte. The copy never
// shares memory with data.
//
// An error is always an *Error. Refused are: empty input, a byte order mark,
// whatever RFC 8259 does not allow, invalid UTF-8, a \u escape that is half of a
// surrogate pair, two keys of one object that are equal once unescaped, an
// object that has more than 262,144 keys together with those that it is in, and
// arrays and objects nested deeper than maxDepth (a scalar has depth 0; a
// maxDepth above 10,000 counts as 10,000).
func Compact(data []byte, maxDepth int) ([]byte, error) {
	s := newScanner(data, maxDepth)
	if err := s.scan(opaque); err != nil {
		return nil, err
	}
	return s.out, nil
}

// Unmarshal checks data as Compact does, then against the type of v, a non-nil
// pointer, and decodes it. When data is refused the error is an *Error and v is
// left alone; any other error means v itself is of no use here.
//
// Where the type is a struct, a key must be the name in the json tag, case
// included, and no other. A null member is as good as absent: the field keeps
// its value, also when it is a json.RawMessage; only Optional and other types
// with an UnmarshalJSON of their own get to see it. As an element of an array or
// a map, null is refused unless the element is a pointer or opaque, because it
// could not be told from a zero value afterwards.
//
// Opaque are json.RawMessage, which gets the compacted bytes and shares no
// memory with data, any, and types with an UnmarshalJSON of their own, whose
// errors become the Detail. Embedded structs, arrays of fixed length and []byte
// are not supported.
func Unmarshal(data []byte, maxDepth int, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("strictjson: decode into %T: not a non-nil pointer", v)
	}
	root, err := slotFor(p.Type().Elem())
	if err != nil {
		return fmt.Errorf("strictjson: decode into %T: %w", v, err)
	}
	s := newScanner(data, maxDepth)
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

// Optional is a field of a patch: it tells absent (the zero Optional), null (Set
// and Null) and a value (Set) apart. Its values are checked like any of type T.
type Optional[T any] struct {
	Set, Null bool
	Value     T
}

// UnmarshalJSON is called by encoding/json, and only where the key is present.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{Set: true}
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

func (Optional[T]) valueType() reflect.Type { return reflect.TypeFor[T]() }

// optional is every Optional, whatever its T.
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

// Token is a key as it stands in a JSON pointer (RFC 6901, section 3).
func Token(key string) string { return escapes.Replace(key) }

// pointer joins tokens given innermost first.
func pointer(path []string) string {
	var b strings.Builder
	for i := len(path) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(Token(path[i]))
	}
	return b.String()
}
