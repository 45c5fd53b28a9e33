package svc

import (
	"encoding/json"

	"github.com/extsvc/svc/internal/policy"
)

// Outcome is how a request is decided.
type Outcome string

// The outcomes. Every outcome other than Allow is a denial.
const (
	Allow        Outcome = "allow"
	ExplicitDeny Outcome = "explicit_deny" // a statement denies the request
	ImplicitDeny Outcome = "implicit_deny" // no statement allows the request
)

// Effect is what a statement does with the requests that it matches.
type Effect string

// The effects.
const (
	EffectAllow Effect = "allow"
	EffectDeny  Effect = "deny"
)

// Context is where a request comes from. The overrides of a bank policy compare it. An empty part
// matches no override.
type Context struct {
	Provider string // "telegram", for example
	Channel  string
	Topic    string
}

// Parameters tell the host how to carry out an allowed action. In every field, nil means unset; an
// empty list is set. In JSON all ten keys are present, null where unset.
type Parameters struct {
	RecallBudget    *string `json:"recall_budget"` // low, mid or high
	RecallMaxTokens *int64  `json:"recall_max_tokens"`
	// RecallTagGroups are JSON objects, as the policy wrote them, compacted.
	RecallTagGroups   []json.RawMessage `json:"recall_tag_groups"`
	RetainRoles       []string          `json:"retain_roles"`
	RetainTags        []string          `json:"retain_tags"`
	RetainEveryNTurns *int64            `json:"retain_every_n_turns"`
	RetainStrategy    *string           `json:"retain_strategy"`
	LLMModel          *string           `json:"llm_model"`
	LLMProvider       *string           `json:"llm_provider"`
	ExcludeProviders  []string          `json:"exclude_providers"`
}

// Decision is the answer to one request. It is immutable and cheap to copy. The zero Decision is a
// denial.
type Decision struct{ of policy.Decision }

// Allowed reports whether the principal may do the action.
func (d Decision) Allowed() bool { return d.of.Allowed() }

// Outcome distinguishes a denial by a statement from a denial without an allowing statement.
func (d Decision) Outcome() Outcome { return Outcome(d.of.Outcome()) }

// Reason is one sentence for a person.
func (d Decision) Reason() string { return d.of.Reason() }

// Parameters returns the parameters of the allowed action. The caller owns them. They are zero in a
// denial.
func (d Decision) Parameters() Parameters { return Parameters(d.of.Parameters()) }

// Strategy returns the retain strategy in force: the principal's own, else that of the bank policy.
// ok is false when there is no strategy, or when the action is denied.
func (d Decision) Strategy() (strategy string, ok bool) { return d.of.Strategy() }

// TraceCode is the kind of a [TraceEntry]. Codes are stable: programs may rely on them.
type TraceCode string

// The trace codes.
const (
	// The statement allows the request.
	TraceAllowMatched TraceCode = policy.CodeAllowMatched
	// The statement allows the request, but another statement denies it.
	TraceAllowOverridden TraceCode = policy.CodeAllowOverridden
	// The statement denies the request.
	TraceDenyMatched TraceCode = policy.CodeDenyMatched
	// No action pattern covers the action.
	TraceActionNotMatched TraceCode = policy.CodeActionNotMatched
	// An action pattern matches, but no bank pattern does.
	TraceBankNotMatched TraceCode = policy.CodeBankNotMatched
	// The policy no longer parses, so everything is denied.
	TraceDocumentInvalid TraceCode = policy.CodeDocumentInvalid

	// This public access is in force and allows the request.
	TracePublicAllowed TraceCode = policy.CodePublicAllowed
	// This public access is in force, but omits the action.
	TracePublicActionNotMatched TraceCode = policy.CodePublicActionNotMatched
	// This public access matches, but a more specific one is in force.
	TracePublicLessSpecific TraceCode = policy.CodePublicLessSpecific
	// This public access is for another provider, channel or topic.
	TracePublicContextNotMatched TraceCode = policy.CodePublicContextNotMatched

	// The strategy comes from this strategy override.
	TraceBankOverride TraceCode = policy.CodeBankOverride
	// The strategy is the default of the bank policy.
	TraceBankDefault TraceCode = policy.CodeBankDefault
)

// TraceEntry is what one statement contributed to a decision.
//
// There are also entries for:
//   - a document that no longer parses (Statement -1, in effect a deny);
//   - each override of public access (Via "public", Statement is its index) and its default
//     (Statement -1);
//   - when the bank policy gives the strategy, the strategy override (Via "bank", Statement is its
//     index) or the default strategy (Statement -1). PolicyID is then that of the bank policy.
type TraceEntry struct {
	PolicyID  string
	Via       string // "user", "group:<id>", "scoping:<service account>", "public" or "bank"
	Statement int    // its index in the document, from 0; -1: see above
	Effect    Effect
	Matched   bool
	// ActionPattern is the first action pattern that matched, and BankPattern the most specific
	// bank pattern that matched. Nil: the entry did not match, or has no such pattern.
	ActionPattern *string
	BankPattern   *string
	Code          TraceCode
	Reason        string     // a sentence
	Sets          Parameters // what a matched entry sets; zero otherwise
	// Lost maps each parameter of this entry that is not in force to the statement
	// ("policy#statement") that won. Never nil; empty in a denial.
	Lost map[string]string
}

// traced returns the public form of a trace.
func traced(trace []policy.Entry) []TraceEntry {
	entries := make([]TraceEntry, len(trace))
	for i := range trace {
		e := &trace[i]
		entries[i] = TraceEntry{
			PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: Effect(e.Effect),
			Matched: e.Matched, ActionPattern: e.ActionPattern, BankPattern: e.BankPattern,
			Code: TraceCode(e.Code), Reason: e.Reason, Sets: Parameters(e.Sets), Lost: e.Lost,
		}
	}
	return entries
}
