package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Type is the type of a parameter's values.
type Type int

// The types. The zero Type is none.
const (
	Integer    Type = iota + 1 // int64, not negative
	Text                       // string, not empty
	TextList                   // []string, of texts that are not empty
	LevelText                  // Level, one of the parameter's Levels
	ObjectList                 // []json.RawMessage, of JSON objects
)

// Merge is how the values of the matching allows of one side combine.
type Merge int

// The merges. The zero Merge is none.
const (
	Greatest Merge = iota + 1
	Least
	Union   // sorted, without repeats
	All     // in gathering order; of equal elements the first
	Closest // the value of the statement that outranks the others
)

// Narrow is how the value of a policy that narrows changes the value that it narrows.
type Narrow int

// The ways to narrow. The zero Narrow is none.
const (
	Lesser Narrow = iota + 1
	Greater
	Intersect
	Unite  // sorted, without repeats
	Append // as Merge joins lists, or else in this order; of equal elements the first
	Replace
)

// Parameter is a parameter that an allow may set.
type Parameter struct {
	Name   string
	Type   Type
	Levels []string // of a LevelText, the least first
	Merge  Merge
	Narrow Narrow
}

// joins reports whether Merge makes one list of all values. Otherwise one value wins.
func (p *Parameter) joins() bool { return p.Merge == Union || p.Merge == All }

// combines reports whether Narrow makes one list of both values. Otherwise one value wins.
func (p *Parameter) combines() bool {
	return p.Narrow == Intersect || p.Narrow == Unite || p.Narrow == Append
}

// limits reports whether a policy of Subject.Narrowing can reduce the parameter.
func (p *Parameter) limits() bool { return p.Narrow != Append && p.Narrow != Replace }

// Schema is a table of parameters. It is immutable. Use [NewSchema] or [Memory].
type Schema struct {
	list     []Parameter
	strategy int // the index of the text retain_strategy; -1: there is none
	// The JSON forms of an access policy and of a bank policy: see forms.
	document, bankDocument reflect.Type
}

// Memory has the parameters of AI memory.
var Memory = must(NewSchema([]Parameter{
	{"recall_budget", LevelText, []string{"low", "mid", "high"}, Greatest, Lesser},
	{"recall_max_tokens", Integer, nil, Greatest, Lesser},
	{"recall_tag_groups", ObjectList, nil, All, Append},
	{"retain_roles", TextList, nil, Union, Intersect},
	{"retain_tags", TextList, nil, Union, Append},
	{"retain_every_n_turns", Integer, nil, Least, Greater}, // fewer turns: it retains more often
	{"retain_strategy", Text, nil, Closest, Replace},
	{"llm_model", Text, nil, Closest, Replace},
	{"llm_provider", Text, nil, Closest, Replace},
	{"exclude_providers", TextList, nil, Union, Unite},
}))

func must(s *Schema, err error) *Schema {
	if err != nil {
		panic(err)
	}
	return s
}

// strategyName is the parameter that takes the place of the strategy of a bank policy.
const strategyName = "retain_strategy"

// MaxParameterName is the most characters of a parameter's name.
const MaxParameterName = 64

// reserved are the keys that stand next to parameters in documents and answers.
var reserved = []string{
	"effect", "actions", "banks", "allowed", "resolved_user_id", "scope", "value",
}

// NewSchema returns the table of these parameters, in this order. An error names the parameter that
// is wrong.
func NewSchema(parameters []Parameter) (*Schema, error) {
	s := &Schema{list: slices.Clone(parameters), strategy: -1}
	seen := map[string]bool{}
	for i := range s.list {
		p := &s.list[i]
		p.Levels = slices.Clone(p.Levels)
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("parameter %d (%q): %w", i, p.Name, err)
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("parameter %d (%q): the name is taken", i, p.Name)
		}
		if seen[p.Name] = true; p.Name == strategyName && p.Type == Text {
			s.strategy = i
		}
	}
	s.forms()
	return s, nil
}

// Parameters returns the table. The caller owns it.
func (s *Schema) Parameters() []Parameter {
	list := slices.Clone(s.list)
	for i := range list {
		list[i].Levels = slices.Clone(list[i].Levels)
	}
	return list
}

// Len returns the number of parameters.
func (s *Schema) Len() int { return len(s.list) }

// Name returns the name of a parameter.
func (s *Schema) Name(i int) string { return s.list[i].Name }

// Index returns the index of the parameter with a name; -1: there is none.
func (s *Schema) Index(name string) int {
	return slices.IndexFunc(s.list, func(p Parameter) bool { return p.Name == name })
}

// check reports what is wrong with a parameter.
func (p *Parameter) check() error {
	merges, narrows := p.sensible()
	switch {
	case !validName(p.Name):
		const form = "the name must have 1 to %d characters of a–z, 0–9 and _"
		return fmt.Errorf(form, MaxParameterName)
	case slices.Contains(reserved, p.Name):
		return errors.New("the name is reserved")
	case merges == nil:
		return errors.New("Type must be set")
	case p.Merge < Greatest || p.Merge > Closest:
		return errors.New("Merge must be set")
	case p.Narrow < Lesser || p.Narrow > Replace:
		return errors.New("Narrow must be set")
	case !slices.Contains(merges, p.Merge):
		return errors.New("Merge does not fit Type")
	case !slices.Contains(narrows, p.Narrow):
		return errors.New("Narrow does not fit Type")
	}
	return p.checkLevels()
}

// sensible returns the merges and the ways to narrow that fit the type. nil: the type is unknown.
func (p *Parameter) sensible() ([]Merge, []Narrow) {
	switch p.Type {
	case Integer, LevelText:
		return []Merge{Greatest, Least, Closest}, []Narrow{Lesser, Greater, Replace}
	case Text:
		return []Merge{Closest}, []Narrow{Replace}
	case TextList:
		return []Merge{Union, All, Closest}, []Narrow{Intersect, Unite, Append, Replace}
	case ObjectList:
		return []Merge{All, Closest}, []Narrow{Intersect, Append, Replace}
	}
	return nil, nil
}

func (p *Parameter) checkLevels() error {
	switch levels := slices.Compact(slices.Sorted(slices.Values(p.Levels))); {
	case p.Type != LevelText && len(levels) > 0:
		return errors.New("only a level has Levels")
	case p.Type == LevelText && len(levels) == 0:
		return errors.New("it has no Levels")
	case len(levels) < len(p.Levels):
		return errors.New("a level is twice in Levels")
	case slices.Contains(levels, ""):
		return errors.New("an empty text is no level")
	}
	return nil
}

func validName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_"
	return name != "" && len(name) <= MaxParameterName && strings.Trim(name, letters) == ""
}
