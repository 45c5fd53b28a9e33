package policy

import "fmt"

// The codes of trace entries. They are stable: programs may rely on them.
const (
	// The statement allows the request.
	CodeAllowMatched = "allow_matched"
	// The statement would allow the request, but the request is denied.
	CodeAllowOverridden = "allow_overridden"
	// The statement denies the request.
	CodeDenyMatched = "deny_matched"
	// No action pattern covers the action.
	CodeActionNotMatched = "action_not_matched"
	// An action pattern covers the action, but no bank pattern covers the bank.
	CodeBankNotMatched = "bank_not_matched"
	// The policy no longer parses: everything is denied.
	CodeDocumentInvalid = "document_invalid"

	// This public access is in force and allows the action.
	CodePublicAllowed = "public_allowed"
	// This public access is in force, but does not list the action.
	CodePublicActionNotMatched = "public_action_not_matched"
	// This public access matches the context, but a more specific one is in force.
	CodePublicLessSpecific = "public_less_specific"
	// This public access is for another provider, channel or topic.
	CodePublicContextNotMatched = "public_context_not_matched"

	CodeBankOverride = "bank_override" // the strategy comes from this strategy override
	CodeBankDefault  = "bank_default"  // the strategy is the bank policy's default_strategy
)

// Entry says what effect one statement had.
//
// A trace has further entries, which are not for statements. A document that no longer parses has
// one: Statement -1, not matched, Effect deny. Each override of public access has one: Via
// "public", Statement is its index. The public default has one: Statement -1. When the bank
// policy gives the strategy, the strategy override has one: Via "bank", Statement is its index. The
// default strategy has Statement -1. PolicyID of the entries "public" and "bank" is the bank
// policy's.
type Entry struct {
	PolicyID string `json:"policy_id"`
	// "user", "group:<id>", "scoping:<service account>", "public" or "bank".
	Via       string `json:"via"`
	Statement int    `json:"statement"`
	Effect    Effect `json:"effect"`
	Matched   bool   `json:"matched"`
	// The first action pattern and the most specific bank pattern that matched. nil when the entry
	// is not matched, or has no such pattern.
	ActionPattern *string `json:"action_pattern"`
	BankPattern   *string `json:"bank_pattern"`
	Code          string  `json:"code"`
	Reason        string  `json:"reason"`
	// Sets holds the parameters of a matched entry; otherwise it is nil. When the request is
	// allowed, an entry of Subject.Narrowing has only the parameters that it can reduce.
	Sets Parameters `json:"sets"`
	// Lost maps each parameter whose value did not win to the first statement ("policy#statement")
	// that won over it. That statement is of the same side, or of another side if the value was in
	// force until then. Only parameters with one value in force can lose, and an equal value has
	// not lost. Never nil. Empty in a denial, where nothing is in force. Entries that are not
	// matched share one map.
	Lost map[string]string `json:"lost"`
}

// recorder writes the trace of one explanation. A nil one records nothing.
type recorder struct {
	request        *Request
	schema         *Schema
	serviceAccount string
	trace          []Entry           // never nil
	nothing        map[string]string // Lost of all entries that are not matched
	limits         []int             // the entries of Subject.Narrowing

	noAction, noBank, allows, denies string // sentences that entries share; "" until needed
}

// reason returns the sentence that all entries with a code share.
func (r *recorder) reason(code string) string {
	sentence, format := &r.noAction, "no action pattern covers %[1]q"
	switch code {
	case CodeBankNotMatched:
		sentence, format = &r.noBank, "no bank pattern covers %[2]q"
	case CodeAllowMatched:
		sentence, format = &r.allows, "allows %q on bank %q"
	case CodeDenyMatched:
		sentence, format = &r.denies, "denies %q on bank %q"
	}
	if *sentence == "" {
		*sentence = fmt.Sprintf(format, r.request.Action, r.request.Bank)
	}
	return *sentence
}

// add adds an entry for a statement of w. statement -1 stands for its document.
func (r *recorder) add(w *attachedBy, statement int, effect Effect, code, reason string) *Entry {
	r.trace = append(r.trace, Entry{})
	e := &r.trace[len(r.trace)-1] // written in place: an entry is large
	e.PolicyID, e.Statement, e.Effect = w.policy, statement, effect
	e.Code, e.Reason, e.Lost = code, reason, r.nothing
	if e.Via = w.via + w.granted; e.Via == "" {
		e.Via = "scoping:" + r.serviceAccount
	}
	if w.limits {
		r.limits = append(r.limits, len(r.trace)-1)
	}
	return e
}

// elsewhere records a statement that does not match the request.
func (r *recorder) elsewhere(w *attachedBy, n int, code string) {
	if r != nil {
		r.add(w, n, w.document.Statements[n].Effect, code, r.reason(code))
	}
}

// match records a statement that matches the request, and returns the map for its losses.
func (r *recorder) match(w *attachedBy, n int, action, bank string) (lost map[string]string) {
	if r == nil {
		return nil
	}
	st, code := &w.document.Statements[n], CodeDenyMatched
	bank = st.asWritten(bank)
	if st.Effect == EffectAllow {
		code = CodeAllowMatched
	}
	e := r.add(w, n, st.Effect, code, r.reason(code))
	e.Matched, e.ActionPattern, e.BankPattern = true, &action, &bank
	e.Sets, e.Lost = st.Parameters.clone(), map[string]string{}
	return e.Lost
}

// limit removes from the entries of Subject.Narrowing the parameters that they do not give. Only
// limits of parameters in force remain.
func (r *recorder) limit(inForce Parameters) {
	for _, at := range r.limits {
		e, left := &r.trace[at], false
		for i := range e.Sets {
			p := &r.schema.list[i]
			if inForce.at(i) == nil || !p.limits() {
				e.Sets[i] = nil
				delete(e.Lost, p.Name)
			}
			left = left || e.Sets[i] != nil
		}
		if !left {
			e.Sets = nil
		}
	}
}

// fault records a document that does not parse.
func (r *recorder) fault(w *attachedBy) {
	if r != nil {
		reason := "the document is not valid: " + w.parsed.fault.Error()
		r.add(w, -1, EffectDeny, CodeDocumentInvalid, reason)
	}
}

// result returns the explanation of a decision.
func (r *recorder) result(d Decision, bank *Bank) Result {
	out := Result{
		Outcome: d.Outcome(), Reason: d.Reason(), Parameters: d.Parameters(),
		Strategy: copied(d.strategy),
	}
	if d.Allowed() {
		r.limit(out.Parameters)
		if out.Strategy != nil && d.verdict.own == nil {
			r.strategy(bank)
		}
	} else {
		r.overrule(out.Reason)
	}
	out.Trace = r.trace
	return out
}

// overrule marks each matching allow of a denied request as overridden.
func (r *recorder) overrule(reason string) {
	for i := range r.trace {
		if e := &r.trace[i]; e.Matched {
			if e.Effect == EffectAllow {
				e.Code = CodeAllowOverridden
				e.Reason += ", but is overridden: " + reason
			}
			clear(e.Lost)
		}
	}
}
