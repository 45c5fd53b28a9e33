package policy

import (
	"fmt"
	"slices"
)

// boundBank is the policy of the bank that is asked for. nil: it has none.
type boundBank struct {
	id       string
	document *BankDocument
	fault    error // why there is no document
}

func readBank(n *Named) *boundBank {
	if n == nil {
		return nil
	}
	b := &boundBank{id: n.ID}
	b.document, b.fault = ParseBankDocument(n.Document)
	return b
}

// broken says what is wrong with the policy, "" when nothing is.
func (b *boundBank) broken() string {
	if b == nil || b.fault == nil {
		return ""
	}
	return fmt.Sprintf("bank policy %q is not valid: %v", b.id, b.fault)
}

func (b *boundBank) faultTrace() []Entry {
	if b.broken() == "" {
		return []Entry{}
	}
	return []Entry{faultEntry(b.id, "bank", b.fault)}
}

// strategy is the entry that gives the bank's strategy: the most specific
// override that matches, else the default. false: the bank has none to give.
func (b *boundBank) strategy(r Request) (Entry, bool) {
	if b == nil {
		return Entry{}, false
	}
	e := Entry{PolicyID: b.id, Via: "bank", Effect: EffectAllow, Matched: true, Lost: map[string]string{}}
	overrides := b.document.StrategyOverrides
	if i := mostSpecific(overrides, r); i >= 0 {
		e.Statement, e.Code = i, CodeBankOverride
		e.Reason = "gives the strategy for " + overrides[i].context().String()
		e.Sets = Sets{RetainStrategy: &overrides[i].Strategy}
		return e, true
	}
	e.Statement, e.Code, e.Reason = -1, CodeBankDefault, "gives the default strategy"
	e.Sets = Sets{RetainStrategy: b.document.DefaultStrategy}
	return e, e.Sets.RetainStrategy != nil
}

// evaluatePublic decides for a sender that belongs to nobody: only the bank's
// public access counts.
func evaluatePublic(closed string, bank *boundBank, r Request) Result {
	switch {
	case closed != "":
		return denial(ImplicitDeny, closed, []Entry{})
	case bank == nil:
		return denial(ImplicitDeny, fmt.Sprintf("denied: bank %q has no policy that opens it to unmapped senders", r.Bank), []Entry{})
	case bank.fault != nil:
		return denial(ImplicitDeny, "denied: "+bank.broken(), bank.faultTrace())
	case bank.document.PublicAccess == nil:
		return denial(ImplicitDeny, fmt.Sprintf("denied: bank policy %q has no public access", bank.id), []Entry{})
	}
	return bank.public(r)
}

// public is the answer of a bank that has public access: the most specific
// override that matches is final, even when it lists nothing.
func (b *boundBank) public(r Request) Result {
	access := b.document.PublicAccess
	chosen := mostSpecific(access.Overrides, r)
	trace := []Entry{}
	for i, o := range access.Overrides {
		trace = append(trace, b.publicEntry(i, o.context(), i == chosen, o.grant(), r))
	}
	if access.Default != nil {
		trace = append(trace, b.publicEntry(-1, context{}, chosen < 0, *access.Default, r))
	}
	who := fmt.Sprintf("the public default of bank policy %q", b.id)
	if chosen >= 0 {
		who = fmt.Sprintf("public override %d (%s) of bank policy %q", chosen, access.Overrides[chosen].context(), b.id)
	}
	for _, e := range trace {
		if e.Matched {
			p := Parameters(e.Sets)
			return conclude("allowed by "+who, p, trace, b, r)
		}
	}
	if chosen < 0 && access.Default == nil {
		return denial(ImplicitDeny, fmt.Sprintf("denied: bank policy %q has no public default, and no override matches", b.id), trace)
	}
	return denial(ImplicitDeny, fmt.Sprintf("denied: %s does not allow %q", who, r.Action), trace)
}

// publicEntry is the trace entry of override i, or of the default (-1, the zero
// context). It is matched when it is the one that allows the request.
func (b *boundBank) publicEntry(i int, c context, chosen bool, grant PublicDefault, r Request) Entry {
	e := Entry{PolicyID: b.id, Via: "public", Statement: i, Effect: EffectAllow, Lost: map[string]string{}}
	action, ok := firstAction(grant.Actions, r.Action)
	switch {
	case !chosen && i >= 0 && !c.matches(r):
		e.Code, e.Reason = CodePublicContextNotMatched, fmt.Sprintf("is for %s only", c)
	case !chosen:
		e.Code, e.Reason = CodePublicLessSpecific, "a more specific override is in force"
	case !ok:
		e.Code, e.Reason = CodePublicActionNotMatched, fmt.Sprintf("is in force, and no action pattern covers %q", r.Action)
	default:
		e.Matched, e.ActionPattern = true, &action
		e.Code, e.Reason = CodePublicAllowed, fmt.Sprintf("allows %q to unmapped senders", r.Action)
		e.Sets = Sets{RecallBudget: grant.RecallBudget, RecallMaxTokens: grant.RecallMaxTokens}
	}
	return e
}

// mostSpecific returns the index of the override that matches and looks at the
// most specific part of the context; -1: none matches.
func mostSpecific[T interface{ context() context }](overrides []T, r Request) int {
	best := -1
	for i, o := range overrides {
		c := o.context()
		if c.matches(r) && (best < 0 || c.rank() > overrides[best].context().rank()) {
			best = i
		}
	}
	return best
}

// matches compares byte by byte. No valid override has an empty value, so that
// a part of the context that is not known matches nothing.
func (c context) matches(r Request) bool {
	switch c.scope {
	case Provider:
		return c.value == r.Provider
	case Channel:
		return c.value == r.Channel
	}
	return c.value == r.Topic
}

func (c context) rank() int { return slices.Index(scopes, c.scope) }

func (c context) String() string { return fmt.Sprintf("%s %q", c.scope, c.value) }
