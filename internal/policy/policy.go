// Package policy decides what a principal may do to a bank and with which parameters, and gives the
// reason.
//
// A [Compiler] turns the stored data of a [Subject] into [Rights]. Patterns are literals or
// prefixes, so all strings fall into finitely many classes. A decision for one class of actions and
// one class of banks holds for all requests of these classes. [Rights.Decide] therefore need not
// look at a statement again. [Rights.Explain] runs the same code on every statement each time, and
// records the effect of each.
//
// Everything fails closed. A document that does not parse, a closed subject and an unknown kind are
// denials with a reason. They are never errors, which a caller could overlook.
//
// The package does no I/O and reads no clock. All of it is safe for concurrent use.
package policy

// Version is the only version of policy documents.
const Version = "2026-03-24"

// Result is the answer to one request, with its explanation.
type Result struct {
	Outcome    Outcome
	Reason     string     // one sentence for a person
	Parameters Parameters // nil in a denial
	Strategy   *string    // the retain strategy in force; nil: none, or a denial
	// Trace has an entry for each statement of each gathered policy, in gathering order. The
	// entries of the narrowing policies follow in their order, then those of the bank policy. Never
	// nil.
	Trace []Entry
}
