package policytest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/extsvc/svc/internal/jcs"
	"github.com/extsvc/svc/internal/policy"
)

// given holds the parameters that a side gives, and the source of each scalar.
type given struct {
	policy.Parameters
	matching []*line
	source   map[string]*line
}

// candidate is a statement that sets a scalar parameter, with its value.
type candidate struct {
	*line
	value any
}

// scalar is a parameter with one value in force.
type scalar struct {
	name string
	read func(*policy.Parameters) any // nil: unset
	copy func(to, from *policy.Parameters)
}

var scalars = []scalar{
	scalarOf("recall_budget", func(p *policy.Parameters) **string { return &p.RecallBudget }),
	scalarOf("retain_strategy", func(p *policy.Parameters) **string { return &p.RetainStrategy }),
	scalarOf("llm_model", func(p *policy.Parameters) **string { return &p.LLMModel }),
	scalarOf("llm_provider", func(p *policy.Parameters) **string { return &p.LLMProvider }),
	scalarOf("recall_max_tokens", func(p *policy.Parameters) **int64 { return &p.RecallMaxTokens }),
	scalarOf("retain_every_n_turns", func(p *policy.Parameters) **int64 {
		return &p.RetainEveryNTurns
	}),
}

func scalarOf[T any](name string, at func(*policy.Parameters) **T) scalar {
	return scalar{
		name: name,
		read: func(p *policy.Parameters) any {
			if v := *at(p); v != nil {
				return *v
			}
			return nil
		},
		copy: func(to, from *policy.Parameters) { *at(to) = *at(from) },
	}
}

// list is a parameter that is a set of strings.
type list struct {
	name string
	at   func(*policy.Parameters) *[]string
}

var lists = []list{
	{"retain_roles", func(p *policy.Parameters) *[]string { return &p.RetainRoles }},
	{"retain_tags", func(p *policy.Parameters) *[]string { return &p.RetainTags }},
	{"exclude_providers", func(p *policy.Parameters) *[]string { return &p.ExcludeProviders }},
}

// merge joins the parameters of the matching allows of a side.
func (l *rules) merge(side []*line) *given {
	g := &given{source: map[string]*line{}}
	for _, n := range side {
		if n.Code == policy.CodeAllowMatched {
			g.matching = append(g.matching, n)
		}
	}
	for _, s := range scalars {
		l.mergeScalar(g, s)
	}
	for _, n := range g.matching {
		for _, f := range lists {
			*f.at(&g.Parameters) = l.mergeList[f.name](*f.at(&g.Parameters), *f.at(&n.gives))
		}
		g.RecallTagGroups = l.joinGroups(g.RecallTagGroups, n.gives.RecallTagGroups)
	}
	return g
}

// mergeScalar finds the value in force on a side. It records the loss of each statement that sets
// another value.
func (l *rules) mergeScalar(g *given, s scalar) {
	var candidates []candidate
	for _, n := range g.matching {
		if v := s.read(&n.gives); v != nil {
			candidates = append(candidates, candidate{n, v})
		}
	}
	if len(candidates) == 0 {
		return
	}
	winner := l.mergeScalars[s.name](candidates)
	s.copy(&g.Parameters, &winner.gives)
	g.source[s.name] = winner.line
	for _, c := range candidates {
		if c.value != winner.value {
			c.Lost[s.name] = winner.ref()
		}
	}
}

// narrow joins the parameters given so far with those of one more side.
func (l *rules) narrow(sofar, scoping *given) *given {
	out := &given{source: map[string]*line{}}
	out.matching = append(append([]*line{}, sofar.matching...), scoping.matching...)
	for _, s := range scalars {
		l.narrowScalar(out, sofar, scoping, s)
	}
	for _, f := range lists {
		owned, scoped := *f.at(&sofar.Parameters), *f.at(&scoping.Parameters)
		*f.at(&out.Parameters) = l.narrowList[f.name](owned, scoped)
	}
	out.RecallTagGroups = l.joinGroups(sofar.RecallTagGroups, scoping.RecallTagGroups)
	return out
}

// narrowScalar finds the value in force between two sides. When only one side sets a value, that
// value stays. The loser's statements with the value in force lose to the winner's source, unless
// they had lost before.
func (l *rules) narrowScalar(out, sofar, scoping *given, s scalar) {
	o, n := s.read(&sofar.Parameters), s.read(&scoping.Parameters)
	winner, loser := scoping, sofar
	if n == nil || o != nil && l.narrowScalars[s.name](o, n) == o {
		winner, loser = sofar, scoping
	}
	s.copy(&out.Parameters, &winner.Parameters)
	out.source[s.name] = winner.source[s.name]
	if o == nil || n == nil || o == n {
		return
	}
	loser.lose(s, winner)
}

// lessen returns the holder's parameters, reduced where the narrowing gives less. The narrowing's
// statements keep only the parameters that they can reduce.
func (l *rules) lessen(holder, narrowing *given) *given {
	out := &given{Parameters: holder.Parameters, source: maps.Clone(holder.source)}
	out.matching = append(append([]*line{}, holder.matching...), narrowing.matching...)
	for _, s := range scalars {
		l.lessenScalar(out, holder, narrowing, s)
	}
	for _, f := range lists {
		lesser, can := l.lessenList[f.name]
		if can && *f.at(&holder.Parameters) != nil {
			*f.at(&out.Parameters) = lesser(*f.at(&holder.Parameters), *f.at(&narrowing.Parameters))
			continue
		}
		for _, m := range narrowing.matching {
			*f.at(&m.Sets) = nil
		}
	}
	for _, m := range narrowing.matching {
		m.Sets.RecallTagGroups = nil
	}
	return out
}

// lessenScalar finds the value in force between the holder and a narrowing.
func (l *rules) lessenScalar(out, holder, narrowing *given, s scalar) {
	lesser, can := l.lessenScalars[s.name]
	h, n := s.read(&holder.Parameters), s.read(&narrowing.Parameters)
	switch {
	case !can || h == nil:
		narrowing.drop(s)
	case n == nil || h == n:
	case lesser(h, n) == h:
		narrowing.lose(s, holder)
	default:
		s.copy(&out.Parameters, &narrowing.Parameters)
		out.source[s.name] = narrowing.source[s.name]
		holder.lose(s, narrowing)
	}
}

// drop removes a parameter from the entries of the matching statements.
func (g *given) drop(s scalar) {
	for _, m := range g.matching {
		s.copy(&m.Sets, &policy.Parameters{})
		delete(m.Lost, s.name)
	}
}

// lose records that the statements with the value in force lost to the winner's source, unless they
// had lost before.
func (g *given) lose(s scalar, winner *given) {
	for _, m := range g.matching {
		if m.Lost[s.name] == "" && s.read(&m.gives) == s.read(&g.Parameters) {
			m.Lost[s.name] = winner.source[s.name].ref()
		}
	}
}

// union returns every string once, sorted by code point, which is the order of the bytes. Two unset
// lists give an unset one.
func union(a, b []string) []string {
	if a == nil && b == nil {
		return nil
	}
	out := []string{}
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// intersection returns the common strings. When one list is unset, it returns the other. Without a
// common string it returns an empty list.
func intersection(a, b []string) []string {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := []string{}
	for _, s := range a {
		if slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

// concatenation returns the groups of a, then those of b. Of groups equal as JSON, the first stays
// as written.
func concatenation(a, b []json.RawMessage) []json.RawMessage {
	if a == nil && b == nil {
		return nil
	}
	out := []json.RawMessage{}
	for _, group := range slices.Concat(a, b) {
		equal := func(o json.RawMessage) bool { return equalJSON(group, o) }
		if !slices.ContainsFunc(out, equal) {
			out = append(out, group)
		}
	}
	return out
}

func equalJSON(a, b json.RawMessage) bool {
	x, errX := jcs.Canonical(a)
	y, errY := jcs.Canonical(b)
	if errX != nil || errY != nil {
		return string(a) == string(b)
	}
	return string(x) == string(y)
}
