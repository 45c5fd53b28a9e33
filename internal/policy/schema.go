package policy

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/extsvc/svc/parameter"
)

// Parameter is a parameter that an allow may set.
type Parameter parameter.Definition

// joins reports whether Merge makes one list of all values. Otherwise one value wins.
func (p *Parameter) joins() bool { return p.Merge == parameter.Union || p.Merge == parameter.All }

// combines reports whether Narrow makes one list of both values. Otherwise one value wins.
func (p *Parameter) combines() bool {
	return p.Narrow == parameter.Intersect || p.Narrow == parameter.Unite ||
		p.Narrow == parameter.Append
}

// limits reports whether a policy of Subject.Narrowing can reduce the parameter.
func (p *Parameter) limits() bool {
	return p.Narrow != parameter.Append && p.Narrow != parameter.Replace
}

// Schema is a table of parameters. It is immutable. Use [NewSchema] or [Memory].
type Schema struct {
	list     []Parameter
	strategy int // the index of the text retain_strategy; -1: there is none
	// The JSON forms of an access policy and of a bank policy: see forms.
	document, bankDocument reflect.Type
}

// Memory has the parameters of AI memory.
var Memory = must(NewSchema(parameter.Memory()))

func must(s *Schema, err error) *Schema {
	if err != nil {
		panic(err)
	}
	return s
}

// strategyName is the parameter that takes the place of the strategy of a bank policy.
const strategyName = "retain_strategy"

// NewSchema returns the table of these parameters, in this order. An error names the parameter that
// is wrong.
func NewSchema(parameters []parameter.Definition) (*Schema, error) {
	s := &Schema{list: make([]Parameter, len(parameters)), strategy: -1}
	seen := map[string]bool{}
	for i := range s.list {
		p := &s.list[i]
		*p = Parameter(parameters[i])
		p.Levels = slices.Clone(p.Levels)
		if err := parameters[i].Check(); err != nil {
			return nil, fmt.Errorf("parameter %d (%q): %w", i, p.Name, err)
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("parameter %d (%q): the name is taken", i, p.Name)
		}
		if seen[p.Name] = true; p.Name == strategyName && p.Type == parameter.Text {
			s.strategy = i
		}
	}
	s.forms()
	return s, nil
}

// Parameters returns the table. The caller owns it.
func (s *Schema) Parameters() []parameter.Definition {
	list := make([]parameter.Definition, len(s.list))
	for i, p := range s.list {
		list[i] = parameter.Definition(p)
		list[i].Levels = slices.Clone(p.Levels)
	}
	return list
}

// Len returns the number of parameters.
func (s *Schema) Len() int { return len(s.list) }

// Index returns the index of the parameter with a name; -1: there is none.
func (s *Schema) Index(name string) int {
	return slices.IndexFunc(s.list, func(p Parameter) bool { return p.Name == name })
}
