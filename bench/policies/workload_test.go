package policies_test

import (
	"encoding/json"
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

// TestWorkload checks the claims of README.md about the queries.
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
		t.Log(s, outcomes, banks)
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

// seed makes every run the same.
const seed = 20260324

// The effects of statements.
const (
	allow = "allow"
	deny  = "deny"
)

type statement struct {
	Effect          string   `json:"effect"`
	Actions         []string `json:"actions"`
	Banks           []string `json:"banks"`
	RecallBudget    string   `json:"recall_budget,omitempty"`
	RecallMaxTokens int      `json:"recall_max_tokens,omitempty"`
	RetainTags      []string `json:"retain_tags,omitempty"`
	LLMModel        string   `json:"llm_model,omitempty"`
}

// document returns a policy as it is stored.
func document(statements []statement) []byte {
	raw, err := json.Marshal(map[string]any{"version": "2026-03-24", "statements": statements})
	if err != nil {
		panic(err)
	}
	return raw
}

// maker makes statements. The more statements, the more actions and banks it uses.
type maker struct {
	*rand.Rand
	tools, projects int
	made            int
}

func newMaker(statements int) *maker {
	return &maker{Rand: rand.New(rand.NewPCG(seed, uint64(statements))), tools: 4 + statements/10, projects: 5 + statements/4}
}

func (m *maker) policies(n, statements int) [][]statement {
	out := make([][]statement, n)
	for i := range out {
		for range statements {
			out[i] = append(out[i], m.statement())
		}
	}
	return out
}

// statement returns the next statement. One in ten denies.
func (m *maker) statement() statement {
	s := statement{Effect: allow, Actions: m.some(m.actionPattern), Banks: m.some(m.bankPattern)}
	if m.made++; m.made%10 == 0 {
		s.Effect = deny
		return s
	}
	switch m.IntN(10) {
	case 0:
		s.RecallBudget, s.RecallMaxTokens = m.one("low", "mid", "high"), 1000*(1+m.IntN(8))
	case 1:
		s.RetainTags = []string{m.one("a", "b", "c"), "all"}
	case 2:
		s.LLMModel = m.one("small", "large")
	case 3:
		s.RecallBudget, s.LLMModel = m.one("low", "mid", "high"), m.one("small", "large")
	}
	return s
}

func (m *maker) actionPattern() string {
	switch n := m.IntN(100); {
	case n < 8:
		return "bank:memories:*"
	case n < 16:
		return m.tool() + ":*"
	case n < 17:
		return "bank:*"
	}
	return m.action()
}

// action returns an action that policies name.
func (m *maker) action() string {
	if m.IntN(2) == 0 {
		return m.tool() + m.one(":run", ":read", ":configure")
	}
	return m.one("bank:recall", "bank:retain", "bank:reflect", "bank:memories:list", "bank:memories:get",
		"bank:memories:delete", "bank:config:read", "bank:config:write", "template:read", "template:install")
}

func (m *maker) bankPattern() string {
	switch n := m.IntN(100); {
	case n < 1:
		return "*"
	case n < 32:
		return m.project() + "::*"
	case n < 40:
		return m.project() + "::team::*"
	}
	return m.bank()
}

// bank returns a bank that policies name.
func (m *maker) bank() string { return m.project() + m.one("", "", "::notes", "::team::notes") }

func (m *maker) tool() string    { return fmt.Sprintf("tool-%d", m.IntN(m.tools)) }
func (m *maker) project() string { return fmt.Sprintf("project-%d", m.IntN(m.projects)) }

func (m *maker) one(of ...string) string { return of[m.IntN(len(of))] }

// some returns one to three different patterns.
func (m *maker) some(pattern func() string) []string {
	var out []string
	for range 1 + m.IntN(3) {
		out = append(out, pattern())
	}
	return distinct(out)
}

// asked is the number of pairs of an action and a bank in the queries.
const asked = 4096

// query is one such pair.
type query struct{ action, bank string }

// mix holds the outcomes of each sixteen queries, in some order.
var mix = slices.Concat(
	slices.Repeat([]outcome{allowed}, 8),
	slices.Repeat([]outcome{denied}, 3),
	slices.Repeat([]outcome{unmatched}, 5),
)

// drawer draws queries that the statements match, and others.
type drawer struct {
	*maker
	statements []statement
}

func (d *drawer) queries() (queries []query, want []outcome) {
	for len(want) < asked {
		want = append(want, mix...)
		block := want[len(want)-len(mix):]
		d.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
		for _, o := range block {
			queries = append(queries, d.query(o))
		}
	}
	return queries, want
}

// query draws until the rules give the wanted outcome.
func (d *drawer) query(want outcome) query {
	for {
		if q := d.any(); decide(d.statements, q.action, q.bank) == want {
			return q
		}
	}
}

// any draws an action and a bank: both of one statement, or of any, or of none.
func (d *drawer) any() query {
	if d.IntN(3) > 0 {
		s := d.statements[d.IntN(len(d.statements))]
		return query{d.actionOf(s), d.bankOf(s)}
	}
	q := query{d.action(), d.bank()}
	if d.IntN(3) == 0 {
		q.action = d.one("bank:", "tool-0:", "stranger:") + d.unseen()
	}
	if d.IntN(2) == 0 {
		q.bank = d.one(d.project()+"::", "stranger-", "stranger::") + d.unseen()
	}
	return q
}

func (d *drawer) actionOf(s statement) string {
	pattern := d.one(spell(s.Actions)...)
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return prefix + d.one("list", "get", "run", d.unseen())
	}
	return pattern
}

func (d *drawer) bankOf(s statement) string {
	pattern := d.one(s.Banks...)
	if pattern == "*" {
		return d.one(d.bank(), "stranger-"+d.unseen())
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return prefix + d.one("notes", "team::notes", d.unseen())
	}
	return pattern
}

// unseen returns a name in no policy.
func (d *drawer) unseen() string { return fmt.Sprintf("unseen-%d", d.IntN(256)) }

// outcome is the rules' answer to a query.
type outcome int

const (
	unmatched outcome = iota // no statement matches: denied
	denied                   // a statement denies
	allowed
)

// decide is the rules in their plainest form. Every engine is compared with it.
func decide(statements []statement, action, bank string) outcome {
	out := unmatched
	for _, s := range statements {
		switch {
		case !coveredByOne(spell(s.Actions), action) || !coveredByOne(s.Banks, bank):
		case s.Effect == deny:
			return denied
		default:
			out = allowed
		}
	}
	return out
}

func coveredByOne(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, name) })
}

func covers(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// spell lists the actions that the patterns cover, for engines in which no literal covers others.
func spell(actions []string) []string {
	if !slices.Contains(actions, "bank:recall") {
		return actions
	}
	return distinct(slices.Concat(actions, []string{"bank:memories:list", "bank:memories:get"}))
}

// distinct returns the strings in order, without repeats.
func distinct(of []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(of, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}
