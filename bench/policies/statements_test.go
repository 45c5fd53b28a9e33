package policies_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// seed makes every run the same.
const seed = 20260324

// The effects of statements.
const (
	allow = "allow"
	deny  = "deny"
)

// statement is a statement of a document.
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

// policies returns the statements of so many policies.
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
