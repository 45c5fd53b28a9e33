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
	// What a matched entry gives; empty otherwise. Of a policy of Subject.Narrowing, where the
	// request is allowed: what it can lessen.
	Sets Sets `json:"sets"`
	// Lost maps each parameter whose value did not prevail to the statement
	// ("policy#statement") that was the first to prevail over it: of its own side, or
	// of another side for what was in force until then. Only parameters of which
	// one value prevails can lose; an equal value has not lost. Never nil; empty in
	// a denial, where nothing is in force. Entries that are not matched share one.
	Lost map[string]string `json:"lost"`
}

// recorder writes the trace of one explanation. A nil one records nothing.
type recorder struct {
	request        *Request
	serviceAccount string
	trace          []Entry           // never nil
	nothing        map[string]string // what entries lose that are not matched
	limits         []int             // the entries of Subject.Narrowing

	noAction, noBank, allows, denies string // sentences that entries share, once they are made
}

// reason returns the sentence that all entries of a code share.
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

// add adds an entry for a statement of w, -1 for its document.
func (r *recorder) add(w *way, statement int, effect Effect, code, reason string) *Entry {
	r.trace = append(r.trace, Entry{})
	e := &r.trace[len(r.trace)-1] // written in place: an entry is large
	e.PolicyID, e.Statement, e.Effect, e.Code, e.Reason, e.Lost = w.policy, statement, effect, code, reason, r.nothing
	if e.Via = w.via; e.Via == "" {
		e.Via = "scoping:" + r.serviceAccount
	}
	if w.limits {
		r.limits = append(r.limits, len(r.trace)-1)
	}
	return e
}

// elsewhere records a statement that speaks of something else.
func (r *recorder) elsewhere(w *way, n int, code string) {
	if r != nil {
		r.add(w, n, w.document.Statements[n].Effect, code, r.reason(code))
	}
}

// match records a statement that speaks of the request, and returns where to write what it loses.
func (r *recorder) match(w *way, n int, action, bank string) (lost map[string]string) {
	if r == nil {
		return nil
	}
	st, code := &w.document.Statements[n], CodeDenyMatched
	if st.Effect == EffectAllow {
		code = CodeAllowMatched
	}
	e := r.add(w, n, st.Effect, code, r.reason(code))
	e.Matched, e.ActionPattern, e.BankPattern = true, &action, &bank
	e.Sets, e.Lost = Sets(st.Parameters.clone()), map[string]string{}
	return e.Lost
}

// limit takes out of the entries of Subject.Narrowing what they do not give: all but the limits of
// parameters that are in force.
func (r *recorder) limit(inForce *Parameters) {
	for _, i := range r.limits {
		e := &r.trace[i]
		recallBudget.withholdUnset(e, inForce)
		recallMaxTokens.withholdUnset(e, inForce)
		retainEveryNTurns.withholdUnset(e, inForce)
		retainStrategy.withhold(e)
		llmModel.withhold(e)
		llmProvider.withhold(e)
		if inForce.RetainRoles == nil {
			e.Sets.RetainRoles = nil
		}
		if inForce.ExcludeProviders == nil {
			e.Sets.ExcludeProviders = nil
		}
		e.Sets.RetainTags, e.Sets.RecallTagGroups = nil, nil
	}
}

// withhold takes the parameter out of an entry.
func (f scalar[T]) withhold(e *Entry) {
	*f.at((*Parameters)(&e.Sets)) = nil
	delete(e.Lost, f.name)
}

// withholdUnset does so where no value is in force.
func (f scalar[T]) withholdUnset(e *Entry, inForce *Parameters) {
	if *f.at(inForce) == nil {
		f.withhold(e)
	}
}

// fault records a document that does not parse.
func (r *recorder) fault(w *way) {
	if r != nil {
		r.add(w, -1, EffectDeny, CodeDocumentInvalid, "the document is not valid: "+w.parsed.fault.Error())
	}
}

// result is the explanation of a decision.
func (r *recorder) result(d Decision, bank *Bank) Result {
	out := Result{Outcome: d.Outcome(), Reason: d.Reason(), Parameters: d.Parameters()}
	if strategy, ok := d.Strategy(); ok {
		out.Strategy = &strategy
	}
	if d.Allowed() {
		r.limit(&out.Parameters)
		if out.Strategy != nil && out.Parameters.RetainStrategy == nil {
			r.strategy(bank)
		}
	} else {
		r.overrule(out.Reason)
	}
	out.Trace = r.trace
	return out
}

// overrule says of each allow that it came to nothing.
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
