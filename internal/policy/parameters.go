package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc/internal/strictjson"
)

// budgets are the values of recall_budget, lowest first.
var budgets = []string{"low", "mid", "high"}

// Parameters are the parameters that an allow may carry. nil means "not set" everywhere; an empty
// list that is not nil is a value. The JSON form has only the keys that are set, in this order.
type Parameters struct {
	RecallBudget      *string           `json:"recall_budget,omitzero"` // low, mid or high
	RecallMaxTokens   *int64            `json:"recall_max_tokens,omitzero"`
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups,omitzero"` // JSON objects, compacted
	RetainRoles       []string          `json:"retain_roles,omitzero"`
	RetainTags        []string          `json:"retain_tags,omitzero"`
	RetainEveryNTurns *int64            `json:"retain_every_n_turns,omitzero"`
	RetainStrategy    *string           `json:"retain_strategy,omitzero"`
	LLMModel          *string           `json:"llm_model,omitzero"`
	LLMProvider       *string           `json:"llm_provider,omitzero"`
	ExcludeProviders  []string          `json:"exclude_providers,omitzero"`
}

// firstSet returns the name of the first parameter that is set, or "".
func (p *Parameters) firstSet() string {
	for field, value := range reflect.ValueOf(p).Elem().Fields() {
		if !value.IsNil() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// hasLists reports whether any list is set.
func (p *Parameters) hasLists() bool {
	return p.RecallTagGroups != nil || p.RetainRoles != nil || p.RetainTags != nil ||
		p.ExcludeProviders != nil
}

// check checks the values. The pointer of its error is relative to the object with the values.
func (p *Parameters) check() error {
	return firstError(
		checkBudget("/recall_budget", p.RecallBudget),
		checkCount("/recall_max_tokens", p.RecallMaxTokens),
		checkObjects("/recall_tag_groups", p.RecallTagGroups),
		checkTexts("/retain_roles", p.RetainRoles),
		checkTexts("/retain_tags", p.RetainTags),
		checkCount("/retain_every_n_turns", p.RetainEveryNTurns),
		checkText("/retain_strategy", p.RetainStrategy),
		checkText("/llm_model", p.LLMModel),
		checkText("/llm_provider", p.LLMProvider),
		checkTexts("/exclude_providers", p.ExcludeProviders),
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

// under puts a pointer in front of the pointer of an error from refuse. A nil error stays nil.
func under(at string, err error) error {
	if refused, ok := err.(*strictjson.Error); ok {
		refused.Pointer = at + refused.Pointer
	}
	return err
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

// append appends a text that is equal exactly when the parameters are equal byte by byte.
func (p *Parameters) append(b []byte) []byte {
	for _, text := range [...]*string{p.RecallBudget, p.RetainStrategy, p.LLMModel, p.LLMProvider} {
		if b = append(b, '|'); text != nil {
			b = appendText(b, *text)
		}
	}
	for _, number := range [...]*int64{p.RecallMaxTokens, p.RetainEveryNTurns} {
		if b = append(b, '|'); number != nil {
			b = strconv.AppendInt(b, *number, 10)
		}
	}
	for _, list := range [...][]string{p.RetainRoles, p.RetainTags, p.ExcludeProviders} {
		if b = append(b, '|'); list != nil {
			b = append(b, '[')
		}
		for _, text := range list {
			b = appendText(b, text)
		}
	}
	if b = append(b, '|'); p.RecallTagGroups != nil {
		b = append(b, '[')
	}
	for _, group := range p.RecallTagGroups {
		b = appendText(b, string(group))
	}
	return b
}

// appendText appends a text after its length, so that different lists never give the same bytes.
func appendText(b []byte, text string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...)
}

// equal reports whether parameters are equal byte by byte.
func (p *Parameters) equal(other *Parameters) bool {
	return same(p.RecallBudget, other.RecallBudget) &&
		same(p.RecallMaxTokens, other.RecallMaxTokens) &&
		same(p.RetainEveryNTurns, other.RetainEveryNTurns) &&
		same(p.RetainStrategy, other.RetainStrategy) &&
		same(p.LLMModel, other.LLMModel) &&
		same(p.LLMProvider, other.LLMProvider) &&
		sameList(p.RetainRoles, other.RetainRoles) &&
		sameList(p.RetainTags, other.RetainTags) &&
		sameList(p.ExcludeProviders, other.ExcludeProviders) &&
		(p.RecallTagGroups == nil) == (other.RecallTagGroups == nil) &&
		slices.EqualFunc(p.RecallTagGroups, other.RecallTagGroups, sameGroup)
}

func sameGroup(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func sameList(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// clone returns a copy that shares no memory.
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
