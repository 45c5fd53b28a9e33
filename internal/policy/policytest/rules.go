package policytest

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/parameter"
)

// rules holds the rules, one function each, so that a test can break one and check that the
// comparison finds it.
type rules struct {
	schema *policy.Schema

	coversAction, coversBank func(pattern, asked string) bool
	closer                   func(a, b string) int        // compares bank patterns
	order                    func(a, b policy.Grant) int  // of gathering
	again                    func(a, b policy.Grant) bool // the same policy the same way
	decide                   func(f findings) policy.Outcome

	mergeScalars  map[string]func([]candidate) candidate
	mergeList     map[string]func(a, b []string) []string
	narrowScalars map[string]func(owner, scoping any) any
	narrowList    map[string]func(owner, scoping []string) []string
	joinGroups    func(a, b []json.RawMessage) []json.RawMessage

	// Parameters not in these maps stay as the holder has them.
	lessenScalars map[string]func(holder, narrowing any) any
	lessenList    map[string]func(holder, narrowing []string) []string

	scopes []policy.Scope // of overrides, the most specific first
}

// law holds the correct rules for the parameters of AI memory.
var law = newLaw()

func newLaw() *rules { return lawOf(policy.Memory) }

// lawOf returns the correct rules for a table of parameters.
func lawOf(schema *policy.Schema) *rules {
	l := &rules{
		schema:       schema,
		coversAction: policy.MatchAction, coversBank: policy.MatchBank,
		closer: closer, order: gatheringOrder, again: sameWay, decide: decide,
		mergeScalars:  map[string]func([]candidate) candidate{},
		mergeList:     map[string]func(a, b []string) []string{},
		narrowScalars: map[string]func(owner, scoping any) any{},
		narrowList:    map[string]func(owner, scoping []string) []string{},
		joinGroups:    concatenation,
		lessenScalars: map[string]func(holder, narrowing any) any{},
		lessenList:    map[string]func(holder, narrowing []string) []string{},
		scopes:        []policy.Scope{policy.Topic, policy.Channel, policy.Provider},
	}
	for _, p := range schema.Parameters() {
		l.merging(p)
		l.narrowing(p)
	}
	return l
}

func (l *rules) merging(p parameter.Definition) {
	compare := func(a, b candidate) int { return compareOf(p.Levels)(a.value, b.value) }
	switch p.Merge {
	case parameter.Greatest:
		l.mergeScalars[p.Name] = func(c []candidate) candidate { return slices.MaxFunc(c, compare) }
	case parameter.Least:
		l.mergeScalars[p.Name] = func(c []candidate) candidate { return slices.MinFunc(c, compare) }
	case parameter.Closest:
		l.mergeScalars[p.Name] = ranked
	case parameter.Union:
		l.mergeList[p.Name] = union
	case parameter.All:
		l.mergeList[p.Name] = inOrder
	}
}

func (l *rules) narrowing(p parameter.Definition) {
	compare := compareOf(p.Levels)
	switch p.Narrow {
	case parameter.Lesser:
		l.narrowScalars[p.Name] = func(o, s any) any { return slices.MinFunc([]any{o, s}, compare) }
		l.lessenScalars[p.Name] = l.narrowScalars[p.Name]
	case parameter.Greater:
		l.narrowScalars[p.Name] = func(o, s any) any { return slices.MaxFunc([]any{o, s}, compare) }
		l.lessenScalars[p.Name] = l.narrowScalars[p.Name]
	case parameter.Replace:
		l.narrowScalars[p.Name] = scopings
	}
	if p.Type != parameter.TextList {
		return
	}
	switch p.Narrow {
	case parameter.Intersect:
		l.narrowList[p.Name] = intersection
		l.lessenList[p.Name] = intersection
	case parameter.Unite:
		l.narrowList[p.Name] = setOnly(union)
		l.lessenList[p.Name] = setOnly(union)
	case parameter.Append:
		join := inOrder
		if p.Merge == parameter.Union {
			join = union
		}
		l.narrowList[p.Name] = setOnly(join)
	}
}

// compareOf returns what compares two levels, or two numbers.
func compareOf(levels []string) func(a, b any) int {
	return func(a, b any) int {
		if n, ok := a.(int64); ok {
			return cmp.Compare(n, b.(int64))
		}
		at := func(v any) int { return slices.Index(levels, string(v.(policy.Level))) }
		return cmp.Compare(at(a), at(b))
	}
}

// compareValues compares two budgets, or two numbers.
var compareValues = compareOf([]string{"low", "mid", "high"})

func compareCandidates(a, b candidate) int { return compareValues(a.value, b.value) }

// most returns the first candidate with the greatest value.
func most(candidates []candidate) candidate { return slices.MaxFunc(candidates, compareCandidates) }

// least returns the first candidate with the least value.
func least(candidates []candidate) candidate {
	return slices.MinFunc(candidates, compareCandidates)
}

func higher(owner, scoping any) any { return slices.MaxFunc([]any{owner, scoping}, compareValues) }
func scopings(_, scoping any) any   { return scoping }

// criterion compares two statements that both set a parameter with one value in force.
type criterion func(a, b candidate) int

// criteria in their order: a user's own policy over a group's, the closer bank pattern, the higher
// priority, the greater policy id, the earlier statement.
var criteria = []criterion{
	func(a, b candidate) int { return compareBools(a.direct, b.direct) },
	func(a, b candidate) int { return closer(a.closest, b.closest) },
	func(a, b candidate) int { return cmp.Compare(a.priority, b.priority) },
	func(a, b candidate) int { return cmp.Compare(a.PolicyID, b.PolicyID) },
	func(a, b candidate) int { return -cmp.Compare(a.Statement, b.Statement) },
}

// ranked keeps the best candidates by each criterion in turn. Several that remain are one policy
// that comes through two groups.
func ranked(candidates []candidate) candidate { return rankedBy(criteria)(candidates) }

func rankedBy(criteria []criterion) func([]candidate) candidate {
	return func(candidates []candidate) candidate {
		for _, compare := range criteria {
			best := slices.MaxFunc(candidates, compare)
			var left []candidate
			for _, c := range candidates {
				if compare(c, best) == 0 {
					left = append(left, c)
				}
			}
			candidates = left
		}
		return candidates[0]
	}
}

// compareBools orders true over false.
func compareBools(a, b bool) int {
	level := map[bool]int{true: 1}
	return cmp.Compare(level[a], level[b])
}
