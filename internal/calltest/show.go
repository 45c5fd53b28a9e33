package calltest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// Shower writes results as text: values as JSON with the names of Go, without what is zero. Bundles are written as such. Times
// are counted from Began. Fields that are bytes are left out of structs.
type Shower struct {
	Began time.Time
}

// Results writes what a method returned, its value or its error. A list is read to its end. With
// fields, such as "Origin.URL", it writes these of the value, or of each row.
func (s Shower) Results(results []reflect.Value, fields []string) (string, error) {
	value, last := results[0], results[len(results)-1]
	if last.Type() == reflect.TypeFor[error]() && !last.IsNil() {
		return "", last.Interface().(error)
	}
	switch value.Kind() {
	case reflect.Interface: // the error that is nil
		return "ok", nil
	case reflect.Func:
		rows := []string{}
		for row, err := range value.Seq2() {
			if !err.IsNil() {
				return "", err.Interface().(error)
			}
			rows = append(rows, s.chosen(row, fields))
		}
		if fields == nil {
			return "[" + strings.Join(rows, ", ") + "]", nil
		}
		return list(rows), nil
	default:
		return s.chosen(value, fields), nil
	}
}

func list(rows []string) string {
	if len(rows) == 0 {
		return "none"
	}
	return strings.Join(rows, ", ")
}

// Refusal writes the code, the field and the fields of each error.
func Refusal(err error) string {
	var all []string
	for _, e := range svc.Errors(err) {
		text := strings.TrimSpace(string(e.Code) + " " + e.Field)
		if len(e.Fields) > 0 {
			text += " [" + strings.Join(e.Fields, " ") + "]"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// chosen writes fields of a value, or of each of a list.
func (s Shower) chosen(v reflect.Value, fields []string) string {
	if fields == nil {
		return s.value(v)
	}
	if v.Kind() == reflect.Slice {
		var rows []string
		for i := range v.Len() {
			rows = append(rows, s.chosen(v.Index(i), fields))
		}
		return list(rows)
	}
	var words []string
	for _, field := range fields {
		words = append(words, s.word(v, strings.Split(field, ".")))
	}
	return strings.Join(words, " ")
}

// word writes a field or the result of a method, of each row of a list; "-" stands for what is zero.
func (s Shower) word(v reflect.Value, names []string) string {
	switch v = reflect.Indirect(v); {
	case !v.IsValid() || len(names) == 0 && v.IsZero():
		return "-"
	case len(names) > 0 && v.Kind() == reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, s.word(v.Index(i), names))
		}
		return list(all)
	case len(names) > 0 && v.MethodByName(names[0]).IsValid():
		return s.word(v.MethodByName(names[0]).Call(nil)[0], names[1:])
	case len(names) > 0:
		return s.word(v.FieldByName(names[0]), names[1:])
	case v.Kind() == reflect.String:
		return v.String()
	default:
		return s.value(v)
	}
}

// value writes a value as JSON.
func (s Shower) value(v reflect.Value) string {
	switch of := v.Interface().(type) {
	case time.Time:
		return s.time(of)
	case json.RawMessage:
		return string(of)
	case []byte:
		return plain(of)
	case svc.Bundle:
		text, err := of.JSON()
		if err != nil {
			return err.Error()
		}
		return string(text)
	case svc.Decision:
		return strings.TrimSuffix(string(of.Outcome())+" "+s.value(reflect.ValueOf(of.Parameters())), " {}")
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return s.value(v.Elem())
	case reflect.Struct:
		return "{" + strings.Join(s.fields(v), ", ") + "}"
	case reflect.Slice:
		rows := []string{}
		for i := range v.Len() {
			rows = append(rows, s.value(v.Index(i)))
		}
		return "[" + strings.Join(rows, ", ") + "]"
	case reflect.String: // a secret as well
		return plain(v.String())
	default:
		return plain(v.Interface())
	}
}

// fields writes those fields of a struct that are not zero.
func (s Shower) fields(v reflect.Value) (all []string) {
	for field, value := range v.Fields() {
		switch {
		case !field.IsExported() || value.IsZero() || value.Type() == reflect.TypeFor[[]byte]():
		case field.Anonymous:
			all = append(all, s.fields(value)...)
		default:
			all = append(all, plain(field.Name)+": "+s.value(value))
		}
	}
	return all
}

// time writes a time as "t+1h0m0s", and says when it is none of UTC.
func (s Shower) time(at time.Time) string {
	text := "t"
	if since := at.Sub(s.Began); since > 0 {
		text += "+" + since.String()
	} else if since < 0 {
		text += since.String()
	}
	if at.Location() != time.UTC {
		text += " elsewhere"
	}
	return plain(text)
}

// plain writes a value of JSON.
func plain(v any) string {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}
