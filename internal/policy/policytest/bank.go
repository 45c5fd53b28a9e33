package policytest

import (
	"fmt"
	"slices"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/parameter"
)

// bank is the policy of the requested bank.
type bank struct {
	id       string
	document *policy.BankDocument // nil: there is no policy, or it does not parse
	fault    error                // why it does not parse
}

func (l *rules) readBank(n *policy.Named) bank {
	if n == nil {
		return bank{}
	}
	d, err := l.schema.ParseBankDocument(n.Document)
	return bank{id: n.ID, document: d, fault: err}
}

func (b bank) faultLine() *line {
	n := faultLine(fmt.Sprintf("bank policy %q", b.id), b.fault)
	n.PolicyID, n.Via = b.id, "bank"
	return n
}

// override is the context that an override is for.
type override struct {
	scope policy.Scope
	value string
}

func (o override) String() string { return fmt.Sprintf("%s %q", o.scope, o.value) }

func (o override) matches(q Request) bool {
	context := map[policy.Scope]string{
		policy.Provider: q.Provider,
		policy.Channel:  q.Channel,
		policy.Topic:    q.Topic,
	}
	return o.value == context[o.scope]
}

// mostSpecific returns the index of the override in force, or -1 when none matches.
func (l *rules) mostSpecific(overrides []override, q Request) int {
	for _, scope := range l.scopes {
		for i, o := range overrides {
			if o.scope == scope && o.matches(q) {
				return i
			}
		}
	}
	return -1
}

// bankStrategy returns the trace entry of the bank's strategy, and the strategy. They are nil when
// the bank gives none.
func (l *rules) bankStrategy(b bank, q Request) (*policy.Entry, *string) {
	if b.document == nil {
		return nil, nil
	}
	var overrides []override
	for _, o := range b.document.StrategyOverrides {
		overrides = append(overrides, override{o.Scope, o.Value})
	}
	e := &policy.Entry{
		PolicyID: b.id, Via: "bank", Effect: policy.EffectAllow,
		Matched: true, Lost: map[string]string{},
	}
	if i := l.mostSpecific(overrides, q); i >= 0 {
		e.Statement, e.Code = i, policy.CodeBankOverride
		e.Reason = "gives the strategy for " + overrides[i].String()
		strategy := &b.document.StrategyOverrides[i].Strategy
		e.Sets = l.setsStrategy(*strategy)
		return e, strategy
	}
	strategy := b.document.DefaultStrategy
	if strategy == nil {
		return nil, nil
	}
	e.Statement, e.Code, e.Reason = -1, policy.CodeBankDefault, "gives the default strategy"
	e.Sets = l.setsStrategy(*strategy)
	return e, strategy
}

// setsStrategy returns what an entry with a bank's strategy sets.
func (l *rules) setsStrategy(strategy string) policy.Parameters {
	for _, p := range l.schema.Parameters() {
		if p.Name == "retain_strategy" && p.Type == parameter.Text {
			return l.parameters(map[string]any{p.Name: strategy})
		}
	}
	return nil
}

// public decides for an unmapped sender: by the override in force only, or else by the default.
func (l *rules) public(closed string, b bank, q Request) policy.Result {
	deny := func(format string, args ...any) policy.Result {
		return denial(policy.ImplicitDeny, fmt.Sprintf(format, args...), []policy.Entry{})
	}
	switch {
	case closed != "":
		return deny("%s", closed)
	case b.fault != nil:
		n := b.faultLine()
		return denial(policy.ImplicitDeny, "denied: "+n.words, []policy.Entry{n.Entry})
	case b.document == nil:
		return deny("denied: bank %q has no policy that opens it to unmapped senders", q.Bank)
	case b.document.PublicAccess == nil:
		return deny("denied: bank policy %q has no public access", b.id)
	}
	return l.publicAccess(b, q)
}

func (l *rules) publicAccess(b bank, q Request) policy.Result {
	access := b.document.PublicAccess
	var overrides []override
	for _, o := range access.Overrides {
		overrides = append(overrides, override{o.Scope, o.Value})
	}
	chosen := l.mostSpecific(overrides, q)
	trace := []policy.Entry{}
	for i, o := range access.Overrides {
		e := l.publicEntry(b, o.PublicDefault, q)
		e.Statement = i
		if !overrides[i].matches(q) {
			e = idle(e, policy.CodePublicContextNotMatched, "is for "+overrides[i].String()+" only")
		} else if i != chosen {
			e = idle(e, policy.CodePublicLessSpecific, "a more specific override is in force")
		}
		trace = append(trace, e)
	}
	who := fmt.Sprintf("the public default of bank policy %q", b.id)
	if chosen >= 0 {
		o := overrides[chosen]
		who = fmt.Sprintf("public override %d (%s) of bank policy %q", chosen, o, b.id)
	}
	if access.Default != nil {
		e := l.publicEntry(b, *access.Default, q)
		e.Statement = -1
		if chosen >= 0 {
			e = idle(e, policy.CodePublicLessSpecific, "a more specific override is in force")
		}
		trace = append(trace, e)
	}
	inForce := slices.IndexFunc(trace, func(e policy.Entry) bool { return e.Matched })
	switch {
	case inForce >= 0:
		return l.conclude("allowed by "+who, trace[inForce].Sets, trace, b, q)
	case chosen < 0 && access.Default == nil:
		const noDefault = "denied: bank policy %q has no public default, and no override matches"
		return denial(policy.ImplicitDeny, fmt.Sprintf(noDefault, b.id), trace)
	}
	reason := fmt.Sprintf("denied: %s does not allow %q", who, q.Action)
	return denial(policy.ImplicitDeny, reason, trace)
}

// publicEntry returns the entry of a default or an override that is in force.
func (l *rules) publicEntry(b bank, access policy.PublicDefault, q Request) policy.Entry {
	e := policy.Entry{
		PolicyID: b.id, Via: "public", Effect: policy.EffectAllow, Lost: map[string]string{},
	}
	actions := covering(access.Actions, q.Action, l.coversAction)
	if len(actions) == 0 {
		reason := fmt.Sprintf("is in force, and no action pattern covers %q", q.Action)
		return idle(e, policy.CodePublicActionNotMatched, reason)
	}
	e.Matched, e.ActionPattern = true, &actions[0]
	e.Code = policy.CodePublicAllowed
	e.Reason = fmt.Sprintf("allows %q to unmapped senders", q.Action)
	e.Sets = access.Parameters
	return e
}

// idle returns the entry of a default or an override that has no effect.
func idle(e policy.Entry, code, reason string) policy.Entry {
	return policy.Entry{
		PolicyID: e.PolicyID, Via: e.Via, Statement: e.Statement, Effect: e.Effect, Lost: e.Lost,
		Code: code, Reason: reason,
	}
}
