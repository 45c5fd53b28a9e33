package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/extsvc/svc/internal/policy"
	"github.com/matryer/is"
)

var (
	actionPatterns = []string{
		"bank:*", "bank:recall", "bank:memories:*", "bank:memories:list", "bank:retain",
		"iam:*", "iam:users:*", "iam:users:read", "iam:users:write", "iam:users:", "iam:groups:*",
		"template:*", "template:admin", "template:sources:*",
	}
	bankPatterns = []string{"*", "*", "*", "a::*", "a::b::*", "a", "a::b", "a::b::c", "z"}
	banks        = []string{"*", "a", "a::b", "a::b::c", "z", "none"}
	asked        = []string{"bank:recall", "bank:memories:list", "bank:memories:get", "bank:retain", "iam:users:read"}
	actions      = universe()
)

// universe is every action of up to three segments, with and without a last
// empty one: at least one action of each class that actionPatterns tell apart.
func universe() []string {
	segments := []string{"bank", "iam", "template", "users", "groups", "memories", "sources", "read", "write", "recall", "list", "admin", "x"}
	all := []string{}
	level := []string{""}
	for range 3 {
		var next []string
		for _, head := range level {
			for _, s := range segments {
				all = append(all, head+s, head+s+":")
				next = append(next, head+s+":")
			}
		}
		level = next
	}
	return all
}

// statement is a statement as the properties know it, and as it is written.
type statement struct {
	Effect            string            `json:"effect"`
	Actions           []string          `json:"actions"`
	Banks             []string          `json:"banks"`
	RecallBudget      string            `json:"recall_budget,omitempty"`
	RecallMaxTokens   *int              `json:"recall_max_tokens,omitempty"`
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups,omitempty"`
	RetainRoles       []string          `json:"retain_roles,omitzero"`
	RetainTags        []string          `json:"retain_tags,omitzero"`
	RetainEveryNTurns *int              `json:"retain_every_n_turns,omitempty"`
	LLMModel          string            `json:"llm_model,omitempty"`
	ExcludeProviders  []string          `json:"exclude_providers,omitzero"`
}

func (s statement) matches(action, bank string) bool {
	for _, a := range s.Actions {
		for _, b := range s.Banks {
			if policy.MatchAction(a, action) && policy.MatchBank(b, bank) {
				return true
			}
		}
	}
	return false
}

// world draws subjects. Of one seed it always draws the same.
type world struct {
	*rand.Rand
	policies [][]statement // by id: one id, one document
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1))}
	for range 5 {
		statements := []statement{}
		for range w.IntN(4) {
			statements = append(statements, w.statement())
		}
		w.policies = append(w.policies, statements)
	}
	return w
}

// forEachWorld runs a property on many worlds, and says which one broke it.
func forEachWorld(t *testing.T, property func(is *is.I, w *world)) {
	is := is.New(t)
	var seed uint64
	defer func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
	}()
	for seed = range uint64(500) {
		property(is, newWorld(seed))
	}
}

func (w *world) statement() statement {
	s := statement{Effect: "allow", Actions: w.some(actionPatterns), Banks: w.some(bankPatterns)}
	if w.IntN(6) == 0 {
		s.Effect = "deny"
		return s
	}
	w.maybe(func() { s.RecallBudget = w.one([]string{"low", "mid", "high"}) })
	w.maybe(func() { s.RecallMaxTokens = new(w.IntN(4)) })
	w.maybe(func() { s.RetainEveryNTurns = new(w.IntN(4)) })
	w.maybe(func() { s.LLMModel = w.one([]string{"m1", "m2", "m3"}) })
	w.maybe(func() { s.RetainRoles = w.some([]string{"user", "assistant", "tool"}) })
	w.maybe(func() { s.RetainTags = w.some([]string{"a", "b", "c"}) })
	w.maybe(func() { s.ExcludeProviders = w.some([]string{"p", "q"}) })
	w.maybe(func() {
		s.RecallTagGroups = []json.RawMessage{json.RawMessage(w.one([]string{`{"a":1}`, `{"a":1.0}`, `{"b":[]}`}))}
	})
	return s
}

func (w *world) subject() policy.Subject {
	s := policy.Subject{Kind: policy.User}
	for range w.IntN(5) {
		id := w.IntN(len(w.policies))
		s.Grants = append(s.Grants, policy.Grant{
			PolicyID: fmt.Sprint(id),
			Group:    w.one([]string{"", "", "g", "h"}),
			Priority: w.Int64N(3),
			Document: document(w.policies[id]),
		})
	}
	return s
}

// serviceAccount narrows what subject draws.
func (w *world) serviceAccount() policy.Subject {
	s := w.subject()
	s.Kind, s.ServiceAccountID = policy.ServiceAccount, "sa"
	id := w.IntN(len(w.policies))
	s.Scoping = &policy.Named{ID: fmt.Sprint(id), Document: document(w.policies[id])}
	return s
}

func (w *world) request() policy.Request {
	r := policy.Request{Action: w.one(asked), Bank: w.one(banks)}
	w.maybe(func() { r.Action = w.one(actions) })
	return r
}

func (w *world) maybe(do func()) {
	if w.IntN(2) == 0 {
		do()
	}
}

func (w *world) one(of []string) string { return of[w.IntN(len(of))] }

// some draws one to three.
func (w *world) some(of []string) []string {
	out := []string{}
	for range 1 + w.IntN(3) {
		out = append(out, w.one(of))
	}
	return out
}

func document(statements []statement) []byte {
	raw, err := json.Marshal(map[string]any{"version": policy.Version, "statements": append([]statement{}, statements...)})
	if err != nil {
		panic(err)
	}
	return raw
}
