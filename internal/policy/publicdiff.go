package policy

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// PublicDiff holds the changes for unmapped senders on one bank, in one context. An empty part of
// Context stands for all values that no override names.
type PublicDiff struct {
	Bank        string
	Context     Context
	Differences []Difference // all with this Bank
}

// StrategyDiff is a change of a bank's strategy. It affects allowed principals that have no
// own strategy.
type StrategyDiff struct {
	Bank          string
	Context       Context // as in a [PublicDiff]
	Before, After *string // nil: none
}

// Shut returns the banks whose policies do not parse, sorted.
func (s *Schema) Shut(banks []Named) []string {
	var shut []string
	for i := range banks {
		if b := s.CompileBank(&banks[i]); b.Broken() {
			shut = append(shut, b.id)
		}
	}
	slices.Sort(shut)
	return shut
}

// expressible returns the banks without those whose ids look like patterns: a list of patterns
// cannot tell such a bank from the banks that the pattern covers.
func expressible(banks []string) []string {
	looksLikePattern := func(id string) bool { return strings.HasSuffix(id, "*") }
	return slices.DeleteFunc(slices.Clone(banks), looksLikePattern)
}

// banks compares the policies of banks.
func (c *Compiler) banks(d *Diff, before, after []Named) {
	type policies struct{ before, after *Named }
	of := map[string]policies{}
	for i, n := range before {
		of[n.ID] = policies{before: &before[i]}
	}
	for i, n := range after {
		of[n.ID] = policies{of[n.ID].before, &after[i]}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		p := of[id]
		if p.before == nil || p.after == nil ||
			!bytes.Equal(p.before.Document, p.after.Document) {
			d.bank(c.call, id, c.schema.CompileBank(p.before), c.schema.CompileBank(p.after))
		}
	}
}

func (d *Diff) bank(call Call, id string, before, after *Bank) {
	was, is := cmp.Or(before, &Bank{}), cmp.Or(after, &Bank{})
	// Many contexts have the same two openings in force, or openings that allow the same.
	type both struct{ before, after int32 }
	known, alike, numbers := map[both][]Difference{}, registry[struct{}]{}, map[*opening]int32{}
	for _, b := range []*Bank{was, is} {
		for _, o := range append(slices.Collect(maps.Values(b.openings)), b.open) {
			numbers[o] = alike.id(o.append(nil), func() (none struct{}) { return none })
		}
	}
	for in := range contexts(call, was.openings, is.openings) {
		pair := both{numbers[was.inForce(&in)], numbers[is.inForce(&in)]}
		list, seen := known[pair]
		if !seen {
			spend(call, 1000+100*(len(was.actionsIn(&in))+len(is.actionsIn(&in))))
			list = publicDifferences(id, in, before, after)
			known[pair] = list
		}
		if list != nil {
			d.addPublic(PublicDiff{id, in, list})
		}
	}
	for in := range contexts(call, was.strategies, is.strategies) {
		b, _ := before.strategy(&in)
		a, _ := after.strategy(&in)
		if !same(b, a) {
			d.addStrategy(StrategyDiff{id, in, copied(b), copied(a)})
		}
	}
}

// contexts yields one context for each pair of overrides (or defaults) of two policies that may be
// in force together. There may be as many as the product of their numbers: a caller that needs only
// some of them uses a part of the values.
func contexts[T any](call Call, before, after map[context]T) iter.Seq[Context] {
	return func(yield func(Context) bool) {
		var choose func(in Context, left []Scope, before, after map[context]T) bool
		named := map[Scope][3][]string{}
		for _, s := range scopes {
			named[s] = [3][]string{values(s, before), values(s, after), values(s, before, after)}
		}
		// choose chooses a value for each scope left. A nil map: its override was found.
		choose = func(in Context, left []Scope, before, after map[context]T) bool {
			if len(left) == 0 || before == nil && after == nil {
				spend(call, contextSteps)
				return !ended(call) && yield(in)
			}
			scope, broader := left[len(left)-1], left[:len(left)-1]
			of := named[scope][2]
			if before == nil {
				of = named[scope][1]
			} else if after == nil {
				of = named[scope][0]
			}
			for _, value := range of {
				c, b, a := context{scope, value}, before, after
				if _, there := before[c]; there {
					b = nil
				}
				if _, there := after[c]; there {
					a = nil
				}
				if !choose(in.with(c), broader, b, a) {
					return false
				}
			}
			return true
		}
		choose(Context{}, scopes, before, after)
	}
}

// contextSteps is about what it takes to compare two policies in a context.
const contextSteps = 400

// values returns the values that overrides have in a scope, sorted. The first is "", for all other
// values.
func values[T any](scope Scope, overrides ...map[context]T) []string {
	all := []string{""}
	for _, o := range overrides {
		for c := range o {
			if c.scope == scope {
				all = append(all, c.value)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (in Context) with(c context) Context {
	switch c.scope {
	case Provider:
		in.Provider = c.value
	case Channel:
		in.Channel = c.value
	case Topic:
		in.Topic = c.value
	}
	return in
}

// publicDifferences compares the rights of unmapped senders in a context.
func publicDifferences(bank string, in Context, before, after *Bank) []Difference {
	patterns := slices.Concat(coveredByRecall, before.actionsIn(&in), after.actionsIn(&in))
	actions := classify(":", patterns)
	above, order := ladder(actions)
	m := regions{above: above}
	m.open(0)
	var found differing
	var list []Difference
	for _, class := range order {
		action := actions.names[class]
		b, a := before.On(action).public(action, &in), after.On(action).public(action, &in)
		n := found.id(b.outcome == Allow, a.outcome == Allow, b.parameters, a.parameters)
		if m.put(class, n) {
			list = append(list, found.difference(n, action, bank))
		}
	}
	slices.SortFunc(list, func(a, b Difference) int { return strings.Compare(a.Action, b.Action) })
	return list
}

// publicActions returns every action pattern of the public access.
func (b *Bank) publicActions() []string {
	if b == nil {
		return nil
	}
	var all []string
	for _, o := range b.openings {
		all = append(all, o.actions...)
	}
	if b.open != nil {
		all = append(all, b.open.actions...)
	}
	return all
}
