// Package policy decides what a principal may do to a bank, with which
// parameters, and says why.
//
// It is the plain evaluator: every call parses the documents it is given and
// looks at every statement in turn, so that the code reads like the rules. A
// faster evaluator is correct when it answers as this one does.
//
// Everything fails closed: a document that does not parse, a subject that is
// closed, a kind that is not known are denials with a reason, never an error
// that a caller could overlook.
//
// The package does no I/O, reads no clock and keeps no state: all of it may be
// used by any number of goroutines.
package policy

import (
	"cmp"
	"fmt"
)

// Version is the only version of policy documents there is.
const Version = "2026-03-24"

// Decision is the outcome of a request.
type Decision string

// The decisions. Only Allow lets anything happen; the two others differ in
// whether a statement says no, or none says yes.
const (
	Allow        Decision = "allow"
	ExplicitDeny Decision = "explicit_deny"
	ImplicitDeny Decision = "implicit_deny"
)

// Result is the answer to one request. Its slices and pointers may be shared
// between its fields: read it, do not change it.
type Result struct {
	Decision   Decision
	Reason     string     // one sentence for a person
	Parameters Parameters // zero in a denial
	Strategy   *string    // the retain strategy in force; nil: none, or a denial
	// Trace has an entry for each statement of each policy that was gathered, in
	// gathering order; the scoping policy's come after the owner's, the bank
	// policy's last. Never nil.
	Trace []Entry
}

// Evaluate decides whether s may do what r asks. A matching deny wins over any
// allow; without a matching allow the answer is no.
func Evaluate(s Subject, r Request) Result {
	return read(s).evaluate(r)
}

func (s *subject) evaluate(r Request) Result {
	bank := readBank(r.BankPolicy)
	if s.Kind == Unmapped {
		return evaluatePublic(s.Closed, bank, r)
	}
	owner, scoping := judge(s.owner, r), judge(s.scoping, r)
	trace := append(append(owner.trace, scoping.trace...), bank.faultTrace()...)
	decision, reason := s.decide(owner, scoping, bank, r)
	if decision != Allow {
		return denial(decision, reason, trace)
	}
	parameters := owner.merge()
	if s.Scoping != nil {
		parameters = narrow(parameters, scoping.merge())
	}
	return conclude(reason, parameters.Parameters, trace, bank, r)
}

// decide weighs the two sides. The order of the cases is the order in which
// one reason beats another.
func (s *subject) decide(owner, scoping *side, bank *boundBank, r Request) (Decision, string) {
	denied := cmp.Or(owner.denied, scoping.denied)
	broken := cmp.Or(owner.broken, scoping.broken, bank.broken())
	asked := fmt.Sprintf("%q on bank %q", r.Action, r.Bank)
	switch {
	case s.Closed != "":
		return ImplicitDeny, s.Closed
	case denied != "":
		return ExplicitDeny, "denied by " + denied
	case broken != "":
		return ImplicitDeny, "denied: " + broken
	case owner.allowed == "":
		return ImplicitDeny, fmt.Sprintf("denied: no policy of %s allows %s", s.holder(), asked)
	case s.Scoping == nil:
		return Allow, "allowed by " + owner.allowed
	case scoping.allowed == "":
		return ImplicitDeny, fmt.Sprintf("denied: scoping policy %q does not allow %s", s.Scoping.ID, asked)
	}
	return Allow, fmt.Sprintf("allowed by %s, within %s", owner.allowed, scoping.allowed)
}

// conclude is the end of every allow: the principal's own strategy stands,
// and where there is none the bank has its say.
func conclude(reason string, p Parameters, trace []Entry, bank *boundBank, r Request) Result {
	result := Result{Decision: Allow, Reason: reason, Parameters: p, Strategy: p.RetainStrategy, Trace: trace}
	if p.RetainStrategy == nil {
		if entry, ok := bank.strategy(r); ok {
			result.Strategy = entry.Sets.RetainStrategy
			result.Trace = append(result.Trace, entry)
		}
	}
	return result
}

// denial is the end of every refusal: it carries no parameters, and the allows
// in its trace say what overrode them.
func denial(decision Decision, reason string, trace []Entry) Result {
	for i := range trace {
		if e := &trace[i]; e.Matched && e.Effect == EffectAllow {
			e.Code = CodeAllowOverridden
			e.Reason += ", but is overridden: " + reason
		}
	}
	return Result{Decision: decision, Reason: reason, Trace: trace}
}
