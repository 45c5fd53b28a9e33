package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/extsvc/svc/internal/strictjson"
)

// budgets are the values of recall_budget, lowest first.
var budgets = []string{"low", "mid", "high"}

// Parameters are what an allow may carry. nil is "not set" everywhere; a list
// that is empty but not nil is a value. Marshalled, all ten keys are there, null
// when unset.
type Parameters struct {
	RecallBudget      *string           `json:"recall_budget"` // low, mid or high
	RecallMaxTokens   *int64            `json:"recall_max_tokens"`
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups"` // JSON objects as they were written, compacted
	RetainRoles       []string          `json:"retain_roles"`
	RetainTags        []string          `json:"retain_tags"`
	RetainEveryNTurns *int64            `json:"retain_every_n_turns"`
	RetainStrategy    *string           `json:"retain_strategy"`
	LLMModel          *string           `json:"llm_model"`
	LLMProvider       *string           `json:"llm_provider"`
	ExcludeProviders  []string          `json:"exclude_providers"`
}

// Sets are Parameters too, but marshalled only the keys that are set are there,
// in this order.
type Sets struct {
	RecallBudget      *string           `json:"recall_budget,omitzero"`
	RecallMaxTokens   *int64            `json:"recall_max_tokens,omitzero"`
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups,omitzero"`
	RetainRoles       []string          `json:"retain_roles,omitzero"`
	RetainTags        []string          `json:"retain_tags,omitzero"`
	RetainEveryNTurns *int64            `json:"retain_every_n_turns,omitzero"`
	RetainStrategy    *string           `json:"retain_strategy,omitzero"`
	LLMModel          *string           `json:"llm_model,omitzero"`
	LLMProvider       *string           `json:"llm_provider,omitzero"`
	ExcludeProviders  []string          `json:"exclude_providers,omitzero"`
}

// firstSet names the first parameter that is set, "" when none is.
func (p *Parameters) firstSet() string {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"recall_budget", p.RecallBudget != nil},
		{"recall_max_tokens", p.RecallMaxTokens != nil},
		{"recall_tag_groups", p.RecallTagGroups != nil},
		{"retain_roles", p.RetainRoles != nil},
		{"retain_tags", p.RetainTags != nil},
		{"retain_every_n_turns", p.RetainEveryNTurns != nil},
		{"retain_strategy", p.RetainStrategy != nil},
		{"llm_model", p.LLMModel != nil},
		{"llm_provider", p.LLMProvider != nil},
		{"exclude_providers", p.ExcludeProviders != nil},
	} {
		if f.set {
			return f.name
		}
	}
	return ""
}

// check checks the values. at is the pointer of the object that holds them.
func (p *Parameters) check(at string) error {
	return firstError(
		checkBudget(at+"/recall_budget", p.RecallBudget),
		checkCount(at+"/recall_max_tokens", p.RecallMaxTokens),
		checkObjects(at+"/recall_tag_groups", p.RecallTagGroups),
		checkTexts(at+"/retain_roles", p.RetainRoles),
		checkTexts(at+"/retain_tags", p.RetainTags),
		checkCount(at+"/retain_every_n_turns", p.RetainEveryNTurns),
		checkText(at+"/retain_strategy", p.RetainStrategy),
		checkText(at+"/llm_model", p.LLMModel),
		checkText(at+"/llm_provider", p.LLMProvider),
		checkTexts(at+"/exclude_providers", p.ExcludeProviders),
	)
}

func checkBudget(at string, v *string) error {
	if v != nil && !slices.Contains(budgets, *v) {
		return refuse(at, "must be low, mid or high")
	}
	return nil
}

func checkCount(at string, v *int64) error {
	if v != nil && *v < 0 {
		return refuse(at, "must not be negative")
	}
	return nil
}

func checkText(at string, v *string) error {
	if v != nil && *v == "" {
		return refuse(at, "must not be empty")
	}
	return nil
}

func checkTexts(at string, values []string) error {
	for i := range values {
		if err := checkText(fmt.Sprintf("%s/%d", at, i), &values[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkObjects(at string, values []json.RawMessage) error {
	for i, v := range values {
		if len(v) == 0 || v[0] != '{' {
			return refuse(fmt.Sprintf("%s/%d", at, i), "must be an object")
		}
	}
	return nil
}

func refuse(at, detail string) error {
	return &strictjson.Error{Pointer: at, Detail: detail}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// clone returns a copy that shares nothing.
func (p *Parameters) clone() Parameters {
	out := Parameters{
		RecallBudget: copied(p.RecallBudget), RecallMaxTokens: copied(p.RecallMaxTokens),
		RetainRoles: slices.Clone(p.RetainRoles), RetainTags: slices.Clone(p.RetainTags),
		RetainEveryNTurns: copied(p.RetainEveryNTurns), RetainStrategy: copied(p.RetainStrategy),
		LLMModel: copied(p.LLMModel), LLMProvider: copied(p.LLMProvider),
		ExcludeProviders: slices.Clone(p.ExcludeProviders),
		RecallTagGroups:  slices.Clone(p.RecallTagGroups),
	}
	for i, group := range out.RecallTagGroups {
		out.RecallTagGroups[i] = slices.Clone(group)
	}
	return out
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
