package policy

import (
	"slices"

	"github.com/extsvc/svc/internal/cache"
)

// Outcome is how a request is decided.
type Outcome string

// The outcomes. Only Allow lets anything happen; the two others differ in
// whether a statement says no, or none says yes.
const (
	Allow        Outcome = "allow"
	ExplicitDeny Outcome = "explicit_deny"
	ImplicitDeny Outcome = "implicit_deny"
)

// Decision is the answer to one request. It cannot be changed, copying it is cheap, and the zero Decision is a denial.
type Decision struct {
	verdict      *verdict
	strategy     *string
	action, bank string
}

// verdict is what is decided for all requests of a class. It is shared: nobody changes it.
type verdict struct {
	outcome    Outcome
	parameters Parameters
	reason     func(action, bank string) string
	// final says that nobody may vouch for what it denies: the subject is closed, or a document that may hold a deny does
	// not parse.
	final bool
	share *cache.Share // of what is kept; nil: it is for one call, or always there
}

// size is about how many bytes a verdict takes. What it shares with documents counts: it stays when they go.
func (v *verdict) size() int64 {
	return cache.Size(v) + cache.Allocated(len(v.reason("", "")))
}

// because is the reason that does not depend on the request.
func because(reason string) func(action, bank string) string {
	return func(string, string) string { return reason }
}

// Allowed reports whether the principal may do it.
func (d Decision) Allowed() bool { return d.verdict != nil && d.verdict.outcome == Allow }

// Outcome tells a denial by a statement from one for want of a statement.
func (d Decision) Outcome() Outcome {
	if d.verdict == nil {
		return ImplicitDeny
	}
	return d.verdict.outcome
}

// Reason is one sentence for a person.
func (d Decision) Reason() string {
	if d.verdict == nil {
		return "denied: nothing was decided"
	}
	return d.verdict.reason(d.action, d.bank)
}

// Parameters are what the allowed action may use: zero in a denial. They are the caller's own.
func (d Decision) Parameters() Parameters {
	if d.verdict == nil {
		return Parameters{}
	}
	return d.verdict.parameters.clone()
}

// Strategy is the retain strategy in force: the principal's own, else the bank policy's. false: there is none, or
// the action is denied.
func (d Decision) Strategy() (strategy string, ok bool) {
	if d.strategy == nil {
		return "", false
	}
	return *d.strategy, true
}

// Vouch returns the decision with what the host answers for: an action on bank "*" that one of the patterns covers is allowed,
// unless a statement denies it or the subject is closed.
func (d Decision) Vouch(patterns []string) Decision {
	if d.bank != controlBank || d.Outcome() != ImplicitDeny || d.verdict == nil || d.verdict.final {
		return d
	}
	if slices.ContainsFunc(patterns, func(p string) bool { return vouches(p, d.action) }) {
		d.verdict = vouched
	}
	return d
}

var vouched = &verdict{outcome: Allow, reason: because("allowed: the host application vouches for it")}

// Always returns the decision that allows anything, for a reason.
func Always(reason string) Decision {
	return Decision{verdict: &verdict{outcome: Allow, reason: because(reason)}}
}
