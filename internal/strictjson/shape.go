package strictjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// shape is what a Go type requires of a JSON value.
type shape struct {
	takes  kind
	must   string           // the detail for a value of another kind
	fields map[string]*slot // of a struct, by tag; nil for everything else
	elem   *slot            // of a slice, a map, or anything opaque
	number reflect.Kind     // Int64, Uint64 or Float64; Invalid: any number
	bits   int              // the size of number
	custom bool             // the type decodes itself
}

// slot is a place for a value: a shape, and the meaning of null there.
type slot struct {
	*shape
	accepts  kind         // the kinds of the shape; also null where it can be told apart
	seesNull bool         // pass null on instead of treating it as absent
	probe    reflect.Type // the type of the place if its shape is custom
	raw      bool         // the place is a struct field that can take a cut
	field    int          // its index, if raw
}

// opaque takes any value unchanged. loose takes any value and makes its numbers float64.
var (
	opaque = selfSimilar(&shape{})
	loose  = selfSimilar(&shape{number: reflect.Float64, bits: 64})
)

func selfSimilar(sh *shape) *slot {
	sh.takes = anyKind
	sl := &slot{shape: sh, accepts: anyKind}
	sh.elem = sl
	return sl
}

// member returns the slot of a key, or nil for an unknown key.
func (sh *shape) member(key []byte) *slot {
	if sh.fields == nil {
		return sh.elem
	}
	return sh.fields[string(key)]
}

// unknown says that a key is not one of a struct, and which ones are.
func (sh *shape) unknown() string {
	if len(sh.fields) == 0 {
		return "is an unknown key: none is known here"
	}
	return "is an unknown key: known are " + strings.Join(slices.Sorted(maps.Keys(sh.fields)), ", ")
}

// mismatch returns the error for a value of kind k that the slot does not accept.
func (s *scanner) mismatch(k kind, sl *slot) *Error {
	switch {
	case k == 0:
		return s.unexpected()
	case s.depth == 0 && sl.takes == object:
		return &Error{Detail: "must be a JSON object"}
	}
	return &Error{Detail: sl.must}
}

// probed reads a value and lets its type decode it once, into a discarded value. This way an error
// of the type gets a pointer.
func (s *scanner) probed(sl *slot) *Error {
	mark := s.flush()
	if err := s.raw(kinds[s.peek()], opaque); err != nil {
		return err
	}
	end := s.flush()
	if err := json.Unmarshal(s.out[mark:end], reflect.New(sl.probe).Interface()); err != nil {
		return &Error{Detail: err.Error()}
	}
	return nil
}

var (
	jsonDecoder = reflect.TypeFor[json.Unmarshaler]()
	textDecoder = reflect.TypeFor[encoding.TextUnmarshaler]()
)

var cache sync.Map // reflect.Type to *slot

func slotFor(t reflect.Type) (*slot, error) {
	if sl, ok := cache.Load(t); ok {
		return sl.(*slot), nil
	}
	sl, err := builder{}.slot(t)
	if err == nil {
		cache.Store(t, sl)
	}
	return sl, err
}

// builder holds the shapes made so far, including unfinished ones: types may be recursive.
type builder map[reflect.Type]*shape

func (b builder) slot(t reflect.Type) (*slot, error) {
	var sl slot
	place := t
	for {
		if o, ok := reflect.Zero(t).Interface().(optional); ok && t.Kind() == reflect.Struct {
			t, sl.seesNull, sl.accepts = o.valueType(), true, null
		} else if t.Kind() == reflect.Pointer {
			t, sl.accepts = t.Elem(), null
		} else {
			break
		}
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &slot{shape: opaque.shape, accepts: anyKind, seesNull: sl.seesNull}, nil
	case reflect.TypeFor[any]():
		return &slot{shape: loose.shape, accepts: anyKind, seesNull: sl.seesNull}, nil
	}
	sh, err := b.shape(t)
	if err != nil {
		return nil, err
	}
	sl.shape = sh
	sl.accepts |= sh.takes
	sl.seesNull = sl.seesNull || sh.takes == anyKind
	if sh.custom {
		sl.probe = place
	}
	return &sl, nil
}

func (b builder) shape(t reflect.Type) (*shape, error) {
	if sh, ok := b[t]; ok {
		return sh, nil
	}
	sh := &shape{}
	b[t] = sh
	switch p := reflect.PointerTo(t); {
	case p.Implements(jsonDecoder):
		sh.takes, sh.custom = anyKind, true
		return sh, nil
	case p.Implements(textDecoder):
		sh.takes, sh.custom, sh.must = text, true, "must be a string"
		return sh, nil
	case t == reflect.TypeFor[json.Number]():
		sh.takes, sh.must = number, "must be a number"
		return sh, nil
	}
	return sh, b.fill(sh, t)
}

func (b builder) fill(sh *shape, t reflect.Type) (err error) {
	switch t.Kind() {
	case reflect.String:
		sh.takes, sh.must = text, "must be a string"
	case reflect.Bool:
		sh.takes, sh.must = boolean, "must be a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		sh.takes, sh.must = number, "must be an integer"
		sh.number, sh.bits = reflect.Int64, t.Bits()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		sh.takes, sh.must = number, "must be an integer"
		sh.number, sh.bits = reflect.Uint64, t.Bits()
	case reflect.Float32, reflect.Float64:
		sh.takes, sh.must = number, "must be a number"
		sh.number, sh.bits = reflect.Float64, t.Bits()
	case reflect.Struct:
		sh.takes, sh.must = object, "must be an object"
		return b.structure(sh, t)
	case reflect.Slice:
		sh.takes, sh.must = array, "must be an array"
		if t.Elem().Kind() == reflect.Uint8 {
			return fmt.Errorf("type %v is not supported", t)
		}
		sh.elem, err = b.slot(t.Elem())
	case reflect.Map:
		sh.takes, sh.must = object, "must be an object"
		k := t.Key()
		if k.Kind() != reflect.String || reflect.PointerTo(k).Implements(textDecoder) {
			return fmt.Errorf("type %v is not supported", t)
		}
		sh.elem, err = b.slot(t.Elem())
	default:
		return fmt.Errorf("type %v is not supported", t)
	}
	return err
}

func (b builder) structure(sh *shape, t reflect.Type) error {
	sh.fields = make(map[string]*slot, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			name = f.Name
		}
		switch {
		case tag == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous || strings.Contains(options, "string") || sh.fields[name] != nil:
			return fmt.Errorf("field %v.%s is not supported", t, f.Name)
		}
		sl, err := b.slot(f.Type)
		if err != nil {
			return fmt.Errorf("field %v.%s: %w", t, f.Name, err)
		}
		sl.raw, sl.field = f.Type == rawField || f.Type == optionalRawField, i
		sh.fields[name] = sl
	}
	return nil
}
