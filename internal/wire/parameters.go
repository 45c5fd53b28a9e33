package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/parameter"
)

// Access is the effective access policy. Its parameters, all of the table, stand behind its keys.
type Access struct {
	Allowed        bool           `json:"allowed"`
	ResolvedUserID *string        `json:"resolved_user_id"`
	Parameters     svc.Parameters `json:"-"`
}

// MarshalJSON writes parameters that are not set as null.
func (a Access) MarshalJSON() ([]byte, error) {
	type keys Access
	b, err := strictjson.Marshal(keys(a))
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-len("}")]
	for name, value := range a.Parameters.All() {
		if b, err = appendMember(append(b, ','), name, value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads all keys other than its own as parameters.
func (a *Access) UnmarshalJSON(text []byte) error {
	type keys Access
	if err := json.Unmarshal(text, (*keys)(a)); err != nil {
		return err
	}
	values, err := parameterValues(text)
	if err != nil {
		return err
	}
	values = slices.DeleteFunc(values, func(v svc.ParameterValue) bool {
		return v.Name == "allowed" || v.Name == "resolved_user_id"
	})
	a.Parameters = parametersOf(values)
	if len(values) != len(parameter.Memory()) {
		a.Parameters.Values = values
	}
	return nil
}

// Sets are the parameters that are set.
type Sets struct{ svc.Parameters }

// MarshalJSON leaves out parameters that are not set.
func (s Sets) MarshalJSON() (b []byte, err error) {
	b = append(b, '{')
	for name, value := range s.All() {
		if value == nil {
			continue
		}
		if len(b) > len("{") {
			b = append(b, ',')
		}
		if b, err = appendMember(b, name, value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads all keys as parameters.
func (s *Sets) UnmarshalJSON(text []byte) error {
	values, err := parameterValues(text)
	s.Parameters = parametersOf(values)
	return err
}

// parametersOf returns parameters with these values, as a Service returns them.
func parametersOf(values []svc.ParameterValue) (p svc.Parameters) {
	for _, v := range values {
		if !policy.SetField(&p, v.Name, v.Value) {
			p.Values = values
		}
	}
	return p
}

// appendMember appends a key that needs no escapes, and a value.
func appendMember(b []byte, key string, value any) ([]byte, error) {
	b = append(append(append(b, '"'), key...), `":`...)
	switch value := value.(type) { // most are one of these
	case nil:
		return append(b, "null"...), nil
	case int64:
		return strconv.AppendInt(b, value, 10), nil
	}
	text, err := strictjson.Marshal(value)
	return append(b, text...), err
}

// parameterValues returns the members of an object, in their order. An empty list counts as a list
// of texts, unless its name is that of a list of objects in [parameter.Memory()].
func parameterValues(text []byte) (values []svc.ParameterValue, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		v := svc.ParameterValue{Name: fmt.Sprint(name)}
		if v.Value, err = parameterValue(v.Name, raw); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", name, err)
		}
		values = append(values, v)
	}
	return values, nil
}

// parameterValue returns the value that JSON says: its type is that of the JSON.
func parameterValue(name string, raw json.RawMessage) (any, error) {
	switch {
	case strings.ContainsRune("ntf", rune(raw[0])): // no parameter is a boolean
		return nil, nil
	case string(raw) == "[]" && isObjectList(name):
		return []json.RawMessage{}, nil
	}
	return policy.ValueOf(raw)
}

func isObjectList(name string) bool {
	return slices.ContainsFunc(parameter.Memory(), func(p parameter.Definition) bool {
		return p.Name == name && p.Type == parameter.ObjectList
	})
}
