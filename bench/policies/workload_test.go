package policies_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/policy"
)

// size is the number of a principal's policies, and of statements in each.
type size struct{ policies, statements int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.policies, s.statements) }

// sizes are the measured sizes, the smallest first.
var sizes = []size{{5, 4}, {20, 10}, {100, 20}}

// workload is a principal's policies and its queries.
type workload struct {
	size
	policies   [][]statement
	statements []statement // of all policies
	subject    policy.Subject
	queries    []query
	want       []outcome // of each query
}

// workloads are shared by all tests and benchmarks of the run.
var workloads = map[size]*workload{}

func workloadOf(s size) *workload {
	if workloads[s] == nil {
		workloads[s] = newWorkload(s)
	}
	return workloads[s]
}

func newWorkload(s size) *workload {
	m := newMaker(s.policies * s.statements)
	w := &workload{size: s, policies: m.policies(s.policies, s.statements)}
	w.statements = slices.Concat(w.policies...)
	var all []policy.Grant
	for i, p := range w.policies {
		all = append(all, grant(m.Rand, i, document(p)))
	}
	w.subject = policy.Subject{Kind: policy.User, Grants: all}
	w.queries, w.want = (&drawer{m, w.statements}).queries()
	return w
}

// grant attaches a policy to the user, or to a group of theirs.
func grant(r *rand.Rand, n int, document []byte) policy.Grant {
	g := policy.Grant{PolicyID: fmt.Sprintf("policy-%d", n), Priority: int64(r.IntN(5)), Document: document}
	if r.IntN(2) == 0 {
		g.Group = fmt.Sprintf("group-%d", r.IntN(3))
	}
	return g
}

// fresh returns the queries in new strings, as requests have them: no engine has kept them and can
// recognize them by address. They lie one after the other, so that the earlier state of memory does
// not matter.
func fresh(queries []query) []query {
	var text strings.Builder
	for _, q := range queries {
		text.WriteString(q.action + q.bank)
	}
	rest, out := text.String(), make([]query, len(queries))
	take := func(n int) (s string) {
		s, rest = rest[:n], rest[n:]
		return s
	}
	for i, q := range queries {
		out[i] = query{take(len(q.action)), take(len(q.bank))}
	}
	return out
}

// TestWorkload checks the claims of docs/performance.md about the queries.
func TestWorkload(t *testing.T) {
	for _, s := range sizes {
		w := workloadOf(s)
		outcomes, banks, denies := map[outcome]int{}, map[string]int{}, 0
		for i, q := range w.queries {
			outcomes[w.want[i]]++
			banks[w.known(q.bank)]++
		}
		for _, s := range w.statements {
			if s.Effect == deny {
				denies++
			}
		}
		t.Log(s, outcomes, banks, "pairs:", len(w.pairs()))
		if outcomes[allowed] != asked/2 || outcomes[denied] < asked/10 || denies*10 != len(w.statements) {
			t.Error(s, "outcomes:", outcomes, "denies:", denies)
		}
		for _, kind := range []string{"literal", "prefix", "unknown"} {
			if banks[kind] < asked/10 {
				t.Error(s, "banks:", banks)
			}
		}
	}
}

// known returns how the policies know a bank: by its name, only by a prefix, or not at all.
func (w *workload) known(bank string) string {
	kind := "unknown"
	for _, s := range w.statements {
		for _, pattern := range s.Banks {
			switch {
			case pattern == bank:
				return "literal"
			case pattern != "*" && covers(pattern, bank):
				kind = "prefix"
			}
		}
	}
	return kind
}

// pairs returns the queries without repeats.
func (w *workload) pairs() []query {
	seen := map[query]bool{}
	return slices.DeleteFunc(slices.Clone(w.queries), func(q query) bool {
		again := seen[q]
		seen[q] = true
		return again
	})
}
