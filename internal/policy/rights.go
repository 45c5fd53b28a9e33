package policy

import (
	"cmp"
	"fmt"
	"hash/maphash"
)

// Rights are what a subject may do. They cannot be changed and are safe for concurrent use. Use [Compiler.Compile].
type Rights struct {
	compiler       *Compiler
	table          *table // nil: an unmapped sender has only what banks give to everybody
	serviceAccount string
	closed         *verdict // nil: open
}

// table is the statements of equal subjects.
type table struct {
	id             uint64
	holder         string // whose the grants are, in words
	owner          []way  // the grants, in gathering order
	scoping        []way  // none or one
	actions, banks *classes
	statements     int
}

// trace returns an empty trace with room for what the statements and the bank's policy come to.
func (t *table) trace() []Entry {
	if t == nil {
		return []Entry{}
	}
	return make([]Entry, 0, t.statements+2)
}

// closed is the verdict on everything that a subject asks for which is closed; nil for "".
func closed(reason string) *verdict {
	if reason == "" {
		return nil
	}
	return &verdict{outcome: ImplicitDeny, reason: because(reason), final: true}
}

// Decide decides a request. A matching deny wins over any allow; without a matching allow the answer is no. It takes time linear
// in the length of the request's strings, whatever the number of policies, once a request of their class was decided before.
func (r *Rights) Decide(action, bank string, in *Context, policy *Bank) Decision {
	v := r.closed
	switch {
	case v != nil:
	case r.table == nil:
		v = policy.public(action, in)
	default:
		v = policy.and(r.verdict(action, bank))
	}
	return Decision{v, v.strategy(in, policy), action, bank}
}

// strategy is the retain strategy in force: where an allow brings none of its own, the bank has its say.
func (v *verdict) strategy(in *Context, policy *Bank) *string {
	if v.outcome != Allow || policy == nil || v.parameters.RetainStrategy != nil {
		return v.parameters.RetainStrategy // nil in a denial
	}
	strategy, _ := policy.strategy(in)
	return strategy
}

// verdict returns what the subject's policies say.
func (r *Rights) verdict(action, bank string) *verdict {
	c := r.compiler
	hash := (maphash.String(c.seed, action)^r.table.id)*odd1 ^ maphash.String(c.seed, bank)
	if v := c.asked.get(hash, r.table.id, action, bank); v != nil {
		return v
	}
	v := r.ofClass(action, bank)
	if len(action)+len(bank) <= keptLength {
		c.asked.put(hash, newAnswer(r.table.id, action, bank, v))
	}
	return v
}

// ofClass returns what they say of all requests of the classes that its strings are in.
func (r *Rights) ofClass(action, bank string) *verdict {
	key := cell{r.table.id, r.table.actions.of(action), r.table.banks.of(bank)}
	v := r.compiler.verdicts.get(key.hash(), key)
	if v == nil {
		v = r.table.judge(action, bank, nil)
		r.compiler.verdicts.put(key.hash(), key, v)
	}
	return v
}

// Explain decides a request as Decide does, and says what each statement came to. The result is the caller's own.
func (r *Rights) Explain(q Request) Result {
	rec := &recorder{request: &q, serviceAccount: r.serviceAccount, trace: r.table.trace(), nothing: map[string]string{}}
	v := r.closed
	switch {
	case r.table != nil:
		said := r.table.judge(q.Action, q.Bank, rec)
		rec.bank(q.Policy)
		if v == nil {
			v = q.Policy.and(said)
		}
	case v == nil:
		v = q.Policy.public(q.Action, &q.Context)
		rec.public(q.Policy)
	}
	return rec.result(Decision{v, v.strategy(&q.Context, q.Policy), q.Action, q.Bank}, q.Policy)
}

// Opened returns the rights that the subject has when nothing closes it.
func (r *Rights) Opened() *Rights {
	open := *r
	open.closed = nil
	return &open
}

// judge decides what the policies say, and tells the recorder, which may be nil, what each statement came to.
func (t *table) judge(action, bank string, rec *recorder) *verdict {
	owner, scoping := examine(t.owner, action, bank, rec), examine(t.scoping, action, bank, rec)
	outcome, cause, parameters := t.rule(owner, scoping)
	v := &verdict{outcome: outcome, parameters: parameters, final: cause == documentBroken}
	switch cause {
	case statementDenies:
		v.reason = because("denied by " + cmp.Or(owner.denied, scoping.denied).String())
	case documentBroken:
		w := cmp.Or(owner.broken, scoping.broken)
		v.reason = because(fmt.Sprintf("denied: %s is not valid: %v", w.words, w.fault))
	case ownerSilent:
		v.reason = lacking("no policy of " + t.holder + " allows")
	case scopingSilent:
		v.reason = lacking(t.scoping[0].words + " does not allow")
	case ownerAllows:
		v.reason = because("allowed by " + owner.allowed.String())
	case bothAllow:
		v.reason = because("allowed by " + owner.allowed.String() + ", within " + scoping.allowed.String())
	}
	return v
}

// cause is why something is decided.
type cause int

const (
	statementDenies cause = iota
	documentBroken
	ownerSilent
	scopingSilent
	ownerAllows
	bothAllow
)

// rule decides what comes of what both sides say.
func (t *table) rule(owner, scoping *side) (Outcome, cause, Parameters) {
	switch {
	case owner.denied.way != nil || scoping.denied.way != nil:
		return ExplicitDeny, statementDenies, Parameters{}
	case owner.broken != nil || scoping.broken != nil:
		return ImplicitDeny, documentBroken, Parameters{}
	case owner.allowed.way == nil:
		return ImplicitDeny, ownerSilent, Parameters{}
	case t.scoping == nil:
		return Allow, ownerAllows, owner.parameters()
	case scoping.allowed.way == nil:
		return ImplicitDeny, scopingSilent, Parameters{}
	}
	return Allow, bothAllow, narrow(&owner.merged, &scoping.merged)
}

// lacking is the reason of a denial because there is no allow.
func lacking(words string) func(action, bank string) string {
	return func(action, bank string) string { return fmt.Sprintf("denied: %s %q on bank %q", words, action, bank) }
}
