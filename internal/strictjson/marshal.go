package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Marshal returns the JSON of v as encoding/json writes it, without HTML escapes. A nil
// json.RawMessage is null.
//
// Marshal returns an *Error for a string that is not valid UTF-8, and for a json.RawMessage that
// Compact refuses for a reason other than depth. encoding/json would change these silently, or not
// say where they are. Any other error means that v itself cannot be written.
//
// Marshal does not look into maps, embedded structs and types with their own MarshalJSON, except
// Optional.
func Marshal(v any) ([]byte, error) {
	if wrong := flaw(reflect.ValueOf(v)); wrong != nil {
		return nil, wrong
	}
	return encode(v)
}

// MarshalJSON writes the value or null. To leave out an absent Optional, give its field the tag
// option omitzero.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if o.Null || !o.Set {
		return []byte("null"), nil
	}
	return encode(o.Value)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// flaw returns the first text in v that cannot be written unchanged.
func flaw(v reflect.Value) *Error {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return &Error{Detail: "must be valid UTF-8"}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return flaw(v.Elem())
		}
	case reflect.Slice:
		if raw, is := v.Interface().(json.RawMessage); is {
			return rawFlaw(raw)
		}
		for i := range v.Len() {
			if wrong := flaw(v.Index(i)); wrong != nil {
				return wrong.within(strconv.Itoa(i))
			}
		}
	case reflect.Struct:
		return structFlaw(v)
	}
	return nil
}

func rawFlaw(raw json.RawMessage) *Error {
	if raw == nil {
		return nil
	}
	_, err := Compact(raw, deepest)
	wrong, _ := errors.AsType[*Error](err)
	return wrong
}

func structFlaw(v reflect.Value) *Error {
	switch v.Interface().(type) {
	case optional:
		return flaw(v.FieldByName("Value"))
	case json.Marshaler:
		return nil
	}
	for field, value := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || field.Anonymous || !field.IsExported() {
			continue
		}
		if wrong := flaw(value); wrong != nil {
			if name == "" {
				name = field.Name
			}
			return wrong.within(name)
		}
	}
	return nil
}

// within moves an error up to the object or array that has key.
func (e *Error) within(key string) *Error {
	return &Error{Pointer: pointer([]string{key}) + e.Pointer, Detail: e.Detail}
}
