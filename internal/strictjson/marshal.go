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

// Marshal returns the JSON of v as encoding/json writes it, without escapes for
// HTML. What encoding/json would silently change or refuse without saying where
// is an *Error: a string that is not valid UTF-8, and a json.RawMessage that
// Compact refuses for another reason than its depth (a nil one is null). Any
// other error means v itself is of no use here.
//
// Maps, embedded structs and types with a MarshalJSON of their own, Optional
// aside, are written without being looked into.
func Marshal(v any) ([]byte, error) {
	if wrong := flaw(reflect.ValueOf(v)); wrong != nil {
		return nil, wrong
	}
	return encode(v)
}

// MarshalJSON writes the value or null. The option omitzero in the tag of its
// field leaves an absent one out.
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

// flaw finds the first text in v that cannot be written as it is.
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

// within is the error seen from the object or array around it.
func (e *Error) within(key string) *Error {
	return &Error{Pointer: pointer([]string{key}) + e.Pointer, Detail: e.Detail}
}
