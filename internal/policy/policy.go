// Package policy decides what a principal may do to a bank, with which
// parameters, and says why.
//
// A [Compiler] turns what is stored about a [Subject] into [Rights]. Patterns are literals or prefixes, so all the strings that
// may be asked about fall into finitely many classes: what was decided once for a class of actions and one of banks holds for
// all requests of these classes, and [Rights.Decide] need not look at a statement again. [Rights.Explain] goes through the
// statements each time, by the same code, and records what each came to.
//
// Everything fails closed: a document that does not parse, a subject that is
// closed, a kind that is not known are denials with a reason, never an error
// that a caller could overlook.
//
// The package does no I/O and reads no clock. All of it may be used by any number of goroutines.
package policy

// Version is the only version of policy documents there is.
const Version = "2026-03-24"

// Result is the answer to one request, and why.
type Result struct {
	Outcome    Outcome
	Reason     string     // one sentence for a person
	Parameters Parameters // zero in a denial
	Strategy   *string    // the retain strategy in force; nil: none, or a denial
	// Trace has an entry for each statement of each policy that was gathered, in
	// gathering order; those of the policies that narrow it come after, in their
	// order, the bank policy's last. Never nil.
	Trace []Entry
}
