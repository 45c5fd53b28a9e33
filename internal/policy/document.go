package policy

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/extsvc/svc/internal/strictjson"
)

// maxDepth limits the nesting of a document. Only recall_tag_groups have a free shape.
const maxDepth = 64

// Effect is a statement's effect on the requests that it matches.
type Effect string

// The effects.
const (
	EffectAllow Effect = "allow"
	EffectDeny  Effect = "deny"
)

// Document is a parsed, valid access policy.
type Document struct {
	Statements []Statement
}

// Statement applies its effect to the actions and banks it names.
type Statement struct {
	Effect     Effect
	Actions    []string   // patterns, at least one
	Banks      []string   // patterns, at least one
	Parameters Parameters // all unset on a deny
}

// CoversAction reports whether an action pattern of the statement covers an action.
func (s *Statement) CoversAction(action string) bool {
	_, covers := firstAction(s.Actions, action)
	return covers
}

// writtenStatement is a Statement in its JSON form, with the parameters next to the other keys.
type writtenStatement struct {
	Effect            Effect            `json:"effect"`
	Actions           []string          `json:"actions"`
	Banks             []string          `json:"banks"`
	RecallBudget      *string           `json:"recall_budget"`
	RecallMaxTokens   *int64            `json:"recall_max_tokens"`
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups"`
	RetainRoles       []string          `json:"retain_roles"`
	RetainTags        []string          `json:"retain_tags"`
	RetainEveryNTurns *int64            `json:"retain_every_n_turns"`
	RetainStrategy    *string           `json:"retain_strategy"`
	LLMModel          *string           `json:"llm_model"`
	LLMProvider       *string           `json:"llm_provider"`
	ExcludeProviders  []string          `json:"exclude_providers"`
}

// ParseDocument parses an access policy. It refuses everything that the rules do not allow, with a
// *strictjson.Error whose pointer is relative to the document. A null key counts as absent. version
// and statements are required; statements may be empty.
func ParseDocument(raw []byte) (*Document, error) {
	var d struct {
		Version    *string            `json:"version"`
		Statements []writtenStatement `json:"statements"`
	}
	if err := strictjson.Unmarshal(raw, maxDepth, &d); err != nil {
		return nil, err
	}
	if err := checkVersion(d.Version); err != nil {
		return nil, err
	}
	if d.Statements == nil {
		return nil, refuse("/statements", "is required")
	}
	out := &Document{Statements: make([]Statement, 0, len(d.Statements))}
	for i, w := range d.Statements {
		s := w.statement()
		if err := s.check(); err != nil {
			return nil, under("/statements/"+strconv.Itoa(i), err)
		}
		out.Statements = append(out.Statements, s)
	}
	return out, nil
}

func (w *writtenStatement) statement() Statement {
	return Statement{w.Effect, w.Actions, w.Banks, Parameters{
		RecallBudget: w.RecallBudget, RecallMaxTokens: w.RecallMaxTokens,
		RecallTagGroups: w.RecallTagGroups, RetainRoles: w.RetainRoles, RetainTags: w.RetainTags,
		RetainEveryNTurns: w.RetainEveryNTurns, RetainStrategy: w.RetainStrategy,
		LLMModel: w.LLMModel, LLMProvider: w.LLMProvider, ExcludeProviders: w.ExcludeProviders,
	}}
}

func (s *Statement) check() error {
	if err := s.checkEffect(); err != nil {
		return err
	}
	return firstError(
		checkSome("/actions", s.Actions),
		checkPatterns("/actions", s.Actions, ValidAction),
		checkSome("/banks", s.Banks),
		checkPatterns("/banks", s.Banks, validBank),
		s.Parameters.check(),
	)
}

func (s *Statement) checkEffect() error {
	switch s.Effect {
	case EffectAllow:
		return nil
	case EffectDeny:
		if name := s.Parameters.firstSet(); name != "" {
			return refuse("/"+name, "is not allowed in a deny")
		}
		return nil
	case "":
		return refuse("/effect", "is required")
	}
	return refuse("/effect", "must be allow or deny")
}

func checkVersion(v *string) error {
	switch {
	case v == nil:
		return refuse("/version", "is required")
	case *v != Version:
		return refuse("/version", fmt.Sprintf("must be %q", Version))
	}
	return nil
}

func checkSome(at string, patterns []string) error {
	if len(patterns) == 0 {
		return refuse(at, "must name at least one")
	}
	return nil
}

func checkPatterns(at string, patterns []string, valid func(string) error) error {
	for i, p := range patterns {
		if err := valid(p); err != nil {
			return refuse(fmt.Sprintf("%s/%d", at, i), err.Error())
		}
	}
	return nil
}
