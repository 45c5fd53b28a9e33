package policy

import (
	"iter"
	"reflect"
)

// Plain returns a value in its public form: a Level is a string.
func Plain(v any) any {
	if level, is := v.(Level); is {
		return string(level)
	}
	return v
}

// All yields every parameter with its value in public form, in the order of the table. nil: it is
// not set. The values may be nil.
func (s *Schema) All(values Parameters) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i := range s.list {
			if !yield(s.list[i].Name, Plain(values.at(i))) {
				return
			}
		}
	}
}

// Fields yields the parameters of AI memory that a struct has as fields, in the order of the table:
// the first fields of the struct. A field is a pointer or a list. nil: it is not set.
func Fields(of any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i := range Memory.list {
			var value any
			if field := reflect.ValueOf(of).Field(i); !field.IsNil() {
				if value = field.Interface(); field.Kind() == reflect.Pointer {
					value = field.Elem().Interface()
				}
			}
			if !yield(Memory.list[i].Name, value) {
				return
			}
		}
	}
}

// SetField sets the field for a parameter of AI memory in a struct, given by a pointer. It reports
// whether there is one. A value of another type leaves it as it is.
func SetField(at any, name string, value any) (known bool) {
	i := Memory.Index(name)
	if i < 0 || value == nil {
		return i >= 0
	}
	field, v := reflect.ValueOf(at).Elem().Field(i), reflect.ValueOf(value)
	if field.Kind() == reflect.Pointer && field.Type().Elem() == v.Type() {
		field.Set(reflect.New(v.Type()))
		field.Elem().Set(v)
	} else if field.Type() == v.Type() {
		field.Set(v)
	}
	return true
}
