package policy

import (
	"slices"

	"github.com/extsvc/svc/internal/cache"
)

// Outcome is how a request is decided.
type Outcome string

// The outcomes. Only Allow permits anything. ExplicitDeny means that a statement denies the
// request, ImplicitDeny that no statement allows it.
const (
	Allow        Outcome = "allow"
	ExplicitDeny Outcome = "explicit_deny"
	ImplicitDeny Outcome = "implicit_deny"
)

// Decision is the answer to one request. It is immutable and cheap to copy. The zero Decision is a
// denial.
type Decision struct {
	verdict      *verdict
	strategy     *string
	action, bank string
	schema       *Schema // nil: that of the zero Decision
}

// verdict is the decision for all requests of a class. It is shared and never changes.
type verdict struct {
	outcome    Outcome
	parameters Parameters
	own        *string // the strategy among the parameters; nil: none
	reason     func(action, bank string) string
	// final: no host may vouch for the request. The subject is closed, or a document that may hold
	// a deny does not parse.
	final bool
	share *cache.Share // nil: the verdict is for one call, or a constant
}

// size estimates the bytes of a verdict. Memory shared with documents counts, because it stays when
// the documents are dropped.
func (v *verdict) size() int64 {
	return cache.Size(v) + cache.Allocated(len(v.reason("", "")))
}

// because returns a reason that does not depend on the request.
func because(reason string) func(action, bank string) string {
	return func(string, string) string { return reason }
}

// undecided is the verdict of the zero Decision.
var undecided = &verdict{
	outcome: ImplicitDeny, reason: because("denied: nothing was decided"), final: true,
}

func (d Decision) said() *verdict {
	if d.verdict == nil {
		return undecided
	}
	return d.verdict
}

// Allowed reports whether the request is allowed.
func (d Decision) Allowed() bool { return d.said().outcome == Allow }

// Outcome returns the outcome. The zero Decision has ImplicitDeny.
func (d Decision) Outcome() Outcome { return d.said().outcome }

// Reason returns one sentence for a person.
func (d Decision) Reason() string { return d.said().reason(d.action, d.bank) }

// Parameters returns a copy of the parameters of the allowed action. They are nil in a denial.
func (d Decision) Parameters() Parameters { return d.said().parameters.clone() }

// Parameter returns a copy of the value of one parameter; nil: it is not set, or unknown.
func (d Decision) Parameter(name string) any {
	if i := d.Schema().Index(name); i >= 0 {
		return cloned(d.said().parameters.at(i))
	}
	return nil
}

// Schema returns the table of the parameters.
func (d Decision) Schema() *Schema {
	if d.schema == nil {
		return Memory
	}
	return d.schema
}

// Strategy returns the retain strategy in force: the principal's own, or else the bank policy's. It
// returns false when there is no strategy, or the action is denied.
func (d Decision) Strategy() (strategy string, ok bool) {
	if d.strategy == nil {
		return "", false
	}
	return *d.strategy, true
}

// Vouch returns the decision with the vouched patterns of the host. An action on bank "*" that a
// pattern covers is allowed, unless a statement denies it, the subject is closed or a document does
// not parse.
func (d Decision) Vouch(patterns []string) Decision {
	if d.bank != controlBank || d.Outcome() != ImplicitDeny || d.said().final {
		return d
	}
	if slices.ContainsFunc(patterns, func(p string) bool { return vouches(p, d.action) }) {
		d.verdict = vouched
	}
	return d
}

var vouched = &verdict{
	outcome: Allow,
	reason:  because("allowed: the host application vouches for it"),
}

// Always returns a decision that allows the request, with a reason.
func (c *Compiler) Always(reason string) Decision {
	return Decision{verdict: &verdict{outcome: Allow, reason: because(reason)}, schema: c.schema}
}
