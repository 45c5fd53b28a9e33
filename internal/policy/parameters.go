package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/strictjson"
)

// Parameters are the values of a table's parameters, by index; nil where unset. They are nil when
// none is set. The values have the types int64, string, Level, []string and []json.RawMessage. An
// empty list is a value.
type Parameters []any

// Level is the value of a [parameter.Level].
type Level string

// at returns a value, or nil.
func (p Parameters) at(i int) any {
	if p == nil {
		return nil
	}
	return p[i]
}

// strategyOf returns the text retain_strategy, or nil.
func (s *Schema) strategyOf(p Parameters) *string {
	if s.strategy >= 0 {
		if strategy, set := p.at(s.strategy).(string); set {
			return &strategy
		}
	}
	return nil
}

// firstSet returns the name of the first parameter that is set, or "".
func (s *Schema) firstSet(p Parameters) string {
	for i, v := range p {
		if v != nil {
			return s.list[i].Name
		}
	}
	return ""
}

// compare compares two values of an integer or a level.
func (p *Parameter) compare(a, b any) int {
	if n, is := a.(int64); is {
		return cmp.Compare(n, b.(int64))
	}
	return p.rank(a) - p.rank(b)
}

func (p *Parameter) rank(level any) int {
	return slices.Index(p.Levels, string(level.(Level)))
}

// check checks the values. The pointer of its error is relative to the object with the values.
func (s *Schema) check(values Parameters) error {
	for i, v := range values {
		if err := s.list[i].checkValue("/"+s.list[i].Name, v); err != nil {
			return err
		}
	}
	return nil
}

func (p *Parameter) checkValue(at string, v any) error {
	switch v := v.(type) {
	case Level:
		if !slices.Contains(p.Levels, string(v)) {
			return refuse(at, "must be "+alternatives(p.Levels))
		}
	case int64:
		if v < 0 {
			return refuse(at, "must not be negative")
		}
	case string:
		return checkText(at, &v)
	case []string:
		return checkTexts(at, v)
	case []json.RawMessage:
		return checkObjects(at, v)
	}
	return nil
}

// alternatives joins words as "low, mid or high".
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func checkText(at string, v *string) error {
	if v != nil && *v == "" {
		return refuse(at, "must not be empty")
	}
	return nil
}

func checkTexts(at string, values []string) error {
	for i := range values {
		if err := checkText(fmt.Sprintf("%s/%d", at, i), &values[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkObjects(at string, values []json.RawMessage) error {
	for i, v := range values {
		if len(v) == 0 || v[0] != '{' {
			return refuse(fmt.Sprintf("%s/%d", at, i), "must be an object")
		}
	}
	return nil
}

// under puts a pointer in front of the pointer of an error from refuse. A nil error stays nil.
func under(at string, err error) error {
	if refused, ok := err.(*strictjson.Error); ok {
		refused.Pointer = at + refused.Pointer
	}
	return err
}

func refuse(at, detail string) error {
	return &strictjson.Error{Pointer: at, Detail: detail}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// append appends a text that is equal exactly when the parameters are equal byte by byte.
func (p Parameters) append(b []byte) []byte {
	for _, v := range p {
		b = append(b, '|')
		switch v := v.(type) {
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case string:
			b = appendText(b, v)
		case Level:
			b = appendText(b, string(v))
		case []string:
			b = append(b, '[')
			for _, text := range v {
				b = appendText(b, text)
			}
		case []json.RawMessage:
			b = append(b, '[')
			for _, object := range v {
				b = appendText(b, string(object))
			}
		}
	}
	return b
}

// appendText appends a text after its length, so that different lists never give the same bytes.
func appendText(b []byte, text string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...)
}

// weight is about how many bytes the parameters take in JSON, without what all parameters take.
func (p Parameters) weight() (n int) {
	for _, v := range p {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []string:
			for _, text := range v {
				n += len(text) + len(`"",`)
			}
		case []json.RawMessage:
			for _, object := range v {
				n += len(object) + len(`,`)
			}
		}
	}
	return n
}

// Weight is about how many bytes the parameters of the decision take in JSON.
func (d Decision) Weight() int { return d.said().parameters.weight() }

// equal reports whether parameters are equal byte by byte.
func (p Parameters) equal(other Parameters) bool {
	if p == nil || other == nil {
		return len(p) == len(other)
	}
	return slices.EqualFunc(p, other, sameValue)
}

// sameValue reports whether two values, or nils, of a parameter are equal byte by byte.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case []string:
		b, is := b.([]string)
		return is && slices.Equal(a, b)
	case []json.RawMessage:
		b, is := b.([]json.RawMessage)
		return is && slices.EqualFunc(a, b, sameObject)
	}
	switch b.(type) {
	case []string, []json.RawMessage:
		return false
	}
	return a == b
}

func sameObject(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// clone returns a copy that shares no memory.
func (p Parameters) clone() Parameters {
	out := slices.Clone(p)
	for i, v := range out {
		out[i] = cloned(v)
	}
	return out
}

func cloned(v any) any {
	switch v := v.(type) {
	case []string:
		return slices.Clone(v)
	case []json.RawMessage:
		list := slices.Clone(v)
		for i, object := range list {
			list[i] = slices.Clone(object)
		}
		return list
	}
	return v
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
