package policytest

import (
	"encoding/json"
	"reflect"

	"github.com/extsvc/svc/internal/policy"
)

// Memory are the values of [policy.Memory]. nil is unset. Its JSON form has only what is set.
type Memory struct {
	RecallBudget      *policy.Level     `json:"recall_budget,omitzero"`
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

// MemoryOf returns the values of parameters.
func MemoryOf(p policy.Parameters) (m Memory) {
	for i, v := range p {
		field := reflect.ValueOf(&m).Elem().Field(i)
		if value := reflect.ValueOf(v); v == nil {
			continue
		} else if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(value.Type()))
			field.Elem().Set(value)
		} else {
			field.Set(value)
		}
	}
	return m
}
