package policytest

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// rules holds the rules, one function each, so that a test can break one and check that the
// comparison finds it.
type rules struct {
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

// law holds the correct rules.
var law = newLaw()

func newLaw() *rules {
	return &rules{
		coversAction: policy.MatchAction, coversBank: policy.MatchBank,
		closer: closer, order: gatheringOrder, again: sameWay, decide: decide,

		mergeScalars: map[string]func([]candidate) candidate{
			"recall_budget": most, "recall_max_tokens": most, "retain_every_n_turns": least,
			"retain_strategy": ranked, "llm_model": ranked, "llm_provider": ranked,
		},
		mergeList: map[string]func(a, b []string) []string{
			"retain_roles": union, "retain_tags": union, "exclude_providers": union,
		},
		narrowScalars: map[string]func(owner, scoping any) any{
			"recall_budget": lower, "recall_max_tokens": lower, "retain_every_n_turns": higher,
			"retain_strategy": scopings, "llm_model": scopings, "llm_provider": scopings,
		},
		narrowList: map[string]func(owner, scoping []string) []string{
			"retain_roles": intersection, "retain_tags": union, "exclude_providers": union,
		},
		joinGroups: concatenation,

		lessenScalars: map[string]func(holder, narrowing any) any{
			"recall_budget": lower, "recall_max_tokens": lower, "retain_every_n_turns": higher,
		},
		lessenList: map[string]func(holder, narrowing []string) []string{
			"retain_roles": intersection, "exclude_providers": union,
		},

		scopes: []policy.Scope{policy.Topic, policy.Channel, policy.Provider},
	}
}

// compareValues compares two budgets, or two numbers.
func compareValues(a, b any) int {
	if n, ok := a.(int64); ok {
		return cmp.Compare(n, b.(int64))
	}
	levels := []any{"low", "mid", "high"}
	return cmp.Compare(slices.Index(levels, a), slices.Index(levels, b))
}

func compareCandidates(a, b candidate) int { return compareValues(a.value, b.value) }

// most returns the first candidate with the greatest value.
func most(candidates []candidate) candidate { return slices.MaxFunc(candidates, compareCandidates) }

// least returns the first candidate with the least value.
func least(candidates []candidate) candidate {
	return slices.MinFunc(candidates, compareCandidates)
}

func lower(owner, scoping any) any  { return slices.MinFunc([]any{owner, scoping}, compareValues) }
func higher(owner, scoping any) any { return slices.MaxFunc([]any{owner, scoping}, compareValues) }
func scopings(_, scoping any) any   { return scoping }

// criterion compares two statements that both set a parameter with one value in force.
type criterion func(a, b candidate) int

// criteria in their order: a user's own policy over a group's, the closer bank pattern, the higher
// priority, the greater policy id, the earlier statement.
var criteria = []criterion{
	func(a, b candidate) int { return compareBools(a.direct, b.direct) },
	func(a, b candidate) int { return closer(*a.BankPattern, *b.BankPattern) },
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
