package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/parameter"
)

// Loose is a statement that no table has checked. Set has the types of Parameters, with a string
// for a Level.
type Loose struct {
	Effect  Effect
	Actions []string
	Banks   []string
	Set     map[string]any // nil: nothing is set; a nil value: null
}

// MarshalLoose returns the document of statements, the names of Set in order. It checks nothing.
// A value without JSON becomes false, which no key of a document takes.
func MarshalLoose(statements []Loose) []byte {
	b := []byte(`{"version":"` + Version + `","statements":[`)
	for i, st := range statements {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"effect":`...), encoded(st.Effect)...)
		b = append(append(b, `,"actions":`...), encoded(st.Actions)...)
		b = append(append(b, `,"banks":`...), encoded(st.Banks)...)
		for _, name := range slices.Sorted(maps.Keys(st.Set)) {
			b = append(append(b, ','), encoded(name)...)
			b = append(append(b, ':'), encoded(st.Set[name])...)
		}
		b = append(b, '}')
	}
	return append(b, `]}`...)
}

func encoded(v any) []byte {
	b, err := strictjson.Marshal(v)
	if err != nil {
		return []byte("false")
	}
	return b
}

// ParseLoose parses a document for some table: each name may be one of a parameter, and each value
// has a type of parameters. Everything else is as in [Schema.ParseDocument]. An empty list is a
// list of texts.
func ParseLoose(raw []byte) ([]Loose, error) {
	var d struct {
		Version    *string                      `json:"version"`
		Statements []map[string]json.RawMessage `json:"statements"`
	}
	if err := strictjson.Unmarshal(raw, maxDepth, &d); err != nil {
		return nil, err
	}
	if err := checkVersion(d.Version); err != nil {
		return nil, err
	}
	if d.Statements == nil {
		return nil, refuse("/statements", "is required")
	}
	out := make([]Loose, len(d.Statements))
	for i, keys := range d.Statements {
		if err := out[i].read(keys); err != nil {
			return nil, under("/statements/"+strconv.Itoa(i), err)
		}
	}
	return out, nil
}

// read reads the keys of a statement. A null key of a parameter stays: a table may not know it.
func (p *Loose) read(keys map[string]json.RawMessage) error {
	own := map[string]any{"effect": &p.Effect, "actions": &p.Actions, "banks": &p.Banks}
	first := "" // that is set
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		var err error
		if into := own[name]; into == nil {
			err = p.set(name, keys[name])
		} else if string(keys[name]) != "null" {
			err = strictjson.Unmarshal(keys[name], maxDepth, into)
		}
		if err != nil {
			return under("/"+strictjson.Token(name), err)
		}
		if first == "" && p.Set[name] != nil {
			first = name
		}
	}
	return checkForm(p.Effect, p.Actions, p.Banks, first)
}

func (p *Loose) set(name string, raw json.RawMessage) error {
	if !parameter.ValidName(name) {
		return refuse("", "is not a name of a parameter")
	}
	if p.Set == nil {
		p.Set = map[string]any{}
	}
	if p.Set[name] = nil; string(raw) == "null" {
		return nil
	}
	value, err := ValueOf(raw)
	if err != nil {
		return err
	}
	p.Set[name] = value
	return new(Parameter).checkValue("", value)
}

// ValueOf returns the value of a parameter, of the type that its JSON has. An empty list is one of
// texts. Without an error, the value is an int64, a string, a []string or a []json.RawMessage.
func ValueOf(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case '"':
		return decoded[string](raw)
	case '[':
		objects, err := decoded[[]json.RawMessage](raw)
		if err != nil || len(objects) > 0 && objects[0][0] == '{' {
			return objects, err
		}
		return decoded[[]string](raw)
	case '{', 't', 'f', 'n':
		return nil, refuse("", "must be an integer, a text, or a list of texts or of objects")
	}
	return decoded[int64](raw)
}

func decoded[T any](raw json.RawMessage) (v T, err error) {
	err = strictjson.Unmarshal(raw, maxDepth, &v)
	return v, err
}
