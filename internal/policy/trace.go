package policy

import "fmt"

// The codes of trace entries. They are stable: programs may tell entries apart
// by them.
const (
	CodeAllowMatched     = "allow_matched"      // the statement allows what is asked
	CodeAllowOverridden  = "allow_overridden"   // it would allow it, but the request is denied
	CodeDenyMatched      = "deny_matched"       // the statement denies what is asked
	CodeActionNotMatched = "action_not_matched" // no action pattern covers the action
	CodeBankNotMatched   = "bank_not_matched"   // an action pattern does, but no bank pattern covers the bank
	CodeDocumentInvalid  = "document_invalid"   // the policy no longer parses: everything is denied

	CodePublicAllowed           = "public_allowed"             // this public access is in force and allows what is asked
	CodePublicActionNotMatched  = "public_action_not_matched"  // it is in force, but does not list the action
	CodePublicLessSpecific      = "public_less_specific"       // it matches the context, but a more specific one is in force
	CodePublicContextNotMatched = "public_context_not_matched" // it is for another provider, channel or topic

	CodeBankOverride = "bank_override" // the strategy comes from this strategy override
	CodeBankDefault  = "bank_default"  // the strategy is the bank policy's default_strategy
)

// Entry says what one statement came to.
//
// Beside statements there are entries for a document that no longer parses
// (Statement -1, not matched, a deny in effect), for each override of public access
// (Via "public", Statement is its index) and its default (Statement -1), and,
// when the bank policy gives the strategy, for the strategy override (Via
// "bank", Statement is its index) or the default strategy (Statement
// -1). Their PolicyID is the bank policy's.
type Entry struct {
	PolicyID  string `json:"policy_id"`
	Via       string `json:"via"` // "user", "group:<id>", "scoping:<service account>", "public" or "bank"
	Statement int    `json:"statement"`
	Effect    Effect `json:"effect"`
	Matched   bool   `json:"matched"`
	// The first action pattern and the most specific bank pattern that matched;
	// nil when the entry is not matched, or has no such pattern.
	ActionPattern *string `json:"action_pattern"`
	BankPattern   *string `json:"bank_pattern"`
	Code          string  `json:"code"`
	Reason        string  `json:"reason"`
	Sets          Sets    `json:"sets"` // what a matched entry gives; empty otherwise
	// Lost maps each parameter whose value is not the one in force to the
	// statement ("policy#statement") that prevailed over it: of its own side, or
	// of the other side for what was in force on its own. Only parameters of which
	// one value prevails can lose; an equal value has not lost. Never nil; empty in
	// a denial, where nothing is in force.
	Lost map[string]string `json:"lost"`
}

// examine says what statement n of w makes of the request.
func (w *way) examine(n int, r Request) Entry {
	s := &w.document.Statements[n]
	e := Entry{PolicyID: w.policy, Via: w.via, Statement: n, Effect: s.Effect, Lost: map[string]string{}}
	action, ok := firstAction(s.Actions, r.Action)
	if !ok {
		e.Code, e.Reason = CodeActionNotMatched, fmt.Sprintf("no action pattern covers %q", r.Action)
		return e
	}
	bank, ok := closestBank(s.Banks, r.Bank)
	if !ok {
		e.Code, e.Reason = CodeBankNotMatched, fmt.Sprintf("no bank pattern covers %q", r.Bank)
		return e
	}
	e.Matched, e.ActionPattern, e.BankPattern = true, &action, &bank
	e.Code, e.Reason = CodeDenyMatched, fmt.Sprintf("denies %q on bank %q", r.Action, r.Bank)
	if s.Effect == EffectAllow {
		e.Code, e.Reason = CodeAllowMatched, fmt.Sprintf("allows %q on bank %q", r.Action, r.Bank)
		e.Sets = Sets(s.Parameters)
	}
	return e
}

// faultEntry is the entry of a document that no longer parses.
func faultEntry(policy, via string, fault error) Entry {
	return Entry{
		PolicyID:  policy,
		Via:       via,
		Statement: -1,
		Effect:    EffectDeny,
		Code:      CodeDocumentInvalid,
		Reason:    "the document is not valid: " + fault.Error(),
		Lost:      map[string]string{},
	}
}
