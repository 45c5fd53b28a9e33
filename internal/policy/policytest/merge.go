package policytest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/parameter"
)

// given holds the parameters that a side gives, by name, and the source of each that one statement
// gives.
type given struct {
	values   map[string]any
	matching []*line
	source   map[string]*line
}

func newGiven(matching ...*line) *given {
	return &given{values: map[string]any{}, matching: matching, source: map[string]*line{}}
}

// set sets a parameter. A nil list is unset.
func (g *given) set(name string, value any) {
	if v := reflect.ValueOf(value); !v.IsValid() || v.Kind() == reflect.Slice && v.IsNil() {
		delete(g.values, name)
	} else {
		g.values[name] = value
	}
}

// candidate is a statement that sets a parameter, with its value.
type candidate struct {
	*line
	value any
}

// value returns a parameter by name, or nil.
func (l *rules) value(p policy.Parameters, name string) any {
	if p == nil {
		return nil
	}
	return p[l.schema.Index(name)]
}

// parameters returns values in the order of the table.
func (l *rules) parameters(values map[string]any) policy.Parameters {
	if len(values) == 0 {
		return nil
	}
	p := make(policy.Parameters, l.schema.Len())
	for name, v := range values {
		p[l.schema.Index(name)] = v
	}
	return p
}

// merge joins the parameters of the matching allows of a side.
func (l *rules) merge(side []*line) *given {
	g := newGiven()
	for _, n := range side {
		if n.Code == policy.CodeAllowMatched {
			g.matching = append(g.matching, n)
		}
	}
	for _, p := range l.schema.Parameters() {
		var candidates []candidate
		for _, n := range g.matching {
			if v := l.value(n.gives, p.Name); v != nil {
				candidates = append(candidates, candidate{n, v})
			}
		}
		if len(candidates) > 0 {
			l.mergeOne(g, p, candidates)
		}
	}
	return g
}

func (l *rules) mergeOne(g *given, p parameter.Definition, candidates []candidate) {
	if pick := l.mergeScalars[p.Name]; pick != nil {
		mergeScalar(g, p.Name, candidates, pick)
		return
	}
	var texts []string
	var objects []json.RawMessage
	for _, c := range candidates {
		switch list := c.value.(type) {
		case []string:
			texts = l.mergeList[p.Name](texts, list)
		case []json.RawMessage:
			objects = l.joinGroups(objects, list)
		}
	}
	if p.Type == parameter.ObjectList {
		g.set(p.Name, objects)
	} else {
		g.set(p.Name, texts)
	}
}

// mergeScalar finds the value in force on a side. It records the loss of each statement that sets
// another value.
func mergeScalar(
	g *given, name string, candidates []candidate, pick func([]candidate) candidate,
) {
	winner := pick(candidates)
	g.values[name], g.source[name] = winner.value, winner.line
	for _, c := range candidates {
		if !reflect.DeepEqual(c.value, winner.value) {
			c.Lost[name] = winner.ref()
		}
	}
}

// narrow joins the parameters given so far with those of one more side.
func (l *rules) narrow(sofar, scoping *given) *given {
	out := newGiven(slices.Concat(sofar.matching, scoping.matching)...)
	for _, p := range l.schema.Parameters() {
		o, n := sofar.values[p.Name], scoping.values[p.Name]
		switch {
		case l.narrowScalars[p.Name] != nil:
			l.narrowScalar(out, sofar, scoping, p.Name)
		case l.narrowList[p.Name] != nil:
			owned, _ := o.([]string)
			scoped, _ := n.([]string)
			out.set(p.Name, l.narrowList[p.Name](owned, scoped))
		default:
			join := commonObjects
			if p.Narrow == parameter.Append {
				join = setOnly(l.joinGroups)
			}
			owned, _ := o.([]json.RawMessage)
			scoped, _ := n.([]json.RawMessage)
			out.set(p.Name, join(owned, scoped))
		}
	}
	return out
}

// narrowScalar finds the value in force between two sides. When only one side sets a value, that
// value stays. The loser's statements with the value in force lose to the winner's source, unless
// they had lost before.
func (l *rules) narrowScalar(out, sofar, scoping *given, name string) {
	o, n := sofar.values[name], scoping.values[name]
	winner, loser := scoping, sofar
	if n == nil || o != nil && reflect.DeepEqual(l.narrowScalars[name](o, n), o) {
		winner, loser = sofar, scoping
	}
	out.set(name, winner.values[name])
	out.source[name] = winner.source[name]
	if o != nil && n != nil && !reflect.DeepEqual(o, n) {
		l.lose(loser, name, winner)
	}
}

// lessen returns the holder's parameters, reduced where the narrowing gives less. The narrowing's
// statements keep only the parameters that they can reduce.
func (l *rules) lessen(holder, narrowing *given) *given {
	out := newGiven(slices.Concat(holder.matching, narrowing.matching)...)
	out.values, out.source = maps.Clone(holder.values), maps.Clone(holder.source)
	for _, p := range l.schema.Parameters() {
		h, n := holder.values[p.Name], narrowing.values[p.Name]
		lesserText := l.lessenList[p.Name]
		objects := p.Type == parameter.ObjectList && p.Narrow == parameter.Intersect
		switch {
		case h != nil && l.lessenScalars[p.Name] != nil:
			l.lessenScalar(out, holder, narrowing, p.Name)
		case h != nil && lesserText != nil:
			scoped, _ := n.([]string)
			out.set(p.Name, lesserText(h.([]string), scoped))
		case h != nil && objects:
			scoped, _ := n.([]json.RawMessage)
			out.set(p.Name, commonObjects(h.([]json.RawMessage), scoped))
		default:
			l.drop(narrowing, p.Name)
		}
	}
	return out
}

// lessenScalar finds the value in force between the holder, which sets one, and a narrowing.
func (l *rules) lessenScalar(out, holder, narrowing *given, name string) {
	h, n := holder.values[name], narrowing.values[name]
	switch {
	case n == nil || reflect.DeepEqual(h, n):
	case reflect.DeepEqual(l.lessenScalars[name](h, n), h):
		l.lose(narrowing, name, holder)
	default:
		out.values[name], out.source[name] = n, narrowing.source[name]
		l.lose(holder, name, narrowing)
	}
}

// drop removes a parameter from the entries of the matching statements.
func (l *rules) drop(g *given, name string) {
	for _, m := range g.matching {
		if m.Sets != nil {
			m.Sets[l.schema.Index(name)] = nil
			if !slices.ContainsFunc(m.Sets, func(v any) bool { return v != nil }) {
				m.Sets = nil
			}
		}
		delete(m.Lost, name)
	}
}

// lose records that the statements with the value in force lost to the winner's source, unless they
// had lost before. A list of several statements has no source.
func (l *rules) lose(g *given, name string, winner *given) {
	if winner.source[name] == nil {
		return
	}
	for _, m := range g.matching {
		if m.Lost[name] == "" && reflect.DeepEqual(l.value(m.gives, name), g.values[name]) {
			m.Lost[name] = winner.source[name].ref()
		}
	}
}

// union returns every string once, sorted by code point, which is the order of the bytes. Two unset
// lists give an unset one.
func union(a, b []string) []string {
	out := inOrder(a, b)
	slices.Sort(out)
	return out
}

// intersection and commonObjects return what both lists have. When one list is unset, they return
// the other. Without a common element they return an empty list.
var (
	intersection  = setOnly(common(equalText))
	commonObjects = setOnly(common(equalJSON))
)

// common returns what returns the elements of one list that the other has as well, each once.
func common[T any](equal func(a, b T) bool) func(a, b []T) []T {
	return func(a, b []T) []T {
		out := []T{}
		for _, v := range a {
			same := func(o T) bool { return equal(v, o) }
			if slices.ContainsFunc(b, same) && !slices.ContainsFunc(out, same) {
				out = append(out, v)
			}
		}
		return out
	}
}

// inOrder and concatenation return the elements of a, then those of b, each as written where it
// comes first. Two unset lists give an unset one.
var (
	inOrder       = joined(equalText)
	concatenation = joined(equalJSON)
)

func joined[T any](equal func(a, b T) bool) func(a, b []T) []T {
	return func(a, b []T) []T {
		if a == nil && b == nil {
			return nil
		}
		out := []T{}
		for _, v := range slices.Concat(a, b) {
			if !slices.ContainsFunc(out, func(o T) bool { return equal(v, o) }) {
				out = append(out, v)
			}
		}
		return out
	}
}

// setOnly returns the list that is set, as it is, or else what both are joined to.
func setOnly[T any](join func(a, b []T) []T) func(a, b []T) []T {
	return func(a, b []T) []T {
		if a == nil {
			return b
		} else if b == nil {
			return a
		}
		return join(a, b)
	}
}

func equalText(a, b string) bool { return a == b }

func equalJSON(a, b json.RawMessage) bool {
	x, errX := jcs.Canonical(a)
	y, errY := jcs.Canonical(b)
	if errX != nil || errY != nil {
		return string(a) == string(b)
	}
	return string(x) == string(y)
}
