// Package policytest provides what the tests of package policy compare with: Evaluate decides as
// the rules are written, and World draws random input. Only tests import it.
//
// Evaluate is slow on purpose. For each request it parses every document and looks at every
// statement. It caches nothing, and has one function for each rule. From package policy it takes
// types, the parsing of documents and the matching of one pattern. It shares no code with the real
// engine.
package policytest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/policy"
)

// Request is a question to Evaluate.
type Request struct {
	Action, Bank             string
	Provider, Channel, Topic string        // the context; an empty part matches no override
	BankPolicy               *policy.Named // nil: the bank has none
}

// Evaluate decides whether s may do what q asks and with which parameters, and says what effect
// every statement had. The fields of its answer may share slices and pointers.
func Evaluate(s policy.Subject, q Request) policy.Result { return law.evaluate(s, q) }

// EvaluateWith is Evaluate for a table of parameters.
func EvaluateWith(schema *policy.Schema, s policy.Subject, q Request) policy.Result {
	return lawOf(schema).evaluate(s, q)
}

func (l *rules) evaluate(s policy.Subject, q Request) policy.Result {
	bank := l.readBank(q.BankPolicy)
	if bank.id == "*" && (strings.HasPrefix(q.Action, "iam:") || strings.HasPrefix(q.Action, "template:")) {
		bank.document, bank.fault = nil, nil // it says nothing of the service itself
	}
	if s.Kind == policy.Unmapped {
		return l.public(s.Closed, bank, q)
	}
	owner, scopings := l.owner(s, q), l.scopings(s, q)
	trace := append([]*line{}, owner...)
	for _, scoping := range scopings {
		trace = append(trace, scoping...)
	}
	if bank.fault != nil {
		trace = append(trace, bank.faultLine())
	}
	f := findings{
		closed:  closed(s),
		denied:  first(trace, policy.CodeDenyMatched),
		broken:  first(trace, policy.CodeDocumentInvalid),
		allowed: first(owner, policy.CodeAllowMatched),
	}
	for _, scoping := range scopings {
		f.within = append(f.within, first(scoping, policy.CodeAllowMatched))
	}
	outcome := l.decide(f)
	if outcome != policy.Allow {
		return denial(outcome, f.denial(s, q), entries(trace))
	}
	given := l.merge(owner)
	for i, scoping := range scopings {
		if i < len(s.Scoping) {
			given = l.narrow(given, l.merge(scoping))
		} else {
			given = l.lessen(given, l.merge(scoping))
		}
	}
	return l.conclude(f.allowance(), l.parameters(given.values), entries(trace), bank, q)
}

// findings are the facts that decide. Each is the first statement or document of its kind, or nil.
type findings struct {
	closed         string // why the subject is closed; "": it is not
	denied, broken *line
	allowed        *line   // of the owner's grants
	within         []*line // the allow of each scoping policy
}

// decide is the main rule: any matching deny denies. Without one, each side must allow. A closed
// subject or a broken document is a denial.
func decide(f findings) policy.Outcome {
	switch {
	case f.closed != "":
		return policy.ImplicitDeny
	case f.denied != nil:
		return policy.ExplicitDeny
	case f.broken != nil, f.allowed == nil, slices.Contains(f.within, nil):
		return policy.ImplicitDeny
	}
	return policy.Allow
}

// denial returns the reason of a denial.
func (f findings) denial(s policy.Subject, q Request) string {
	switch {
	case f.closed != "":
		return f.closed
	case f.denied != nil:
		return "denied by " + f.denied.words
	case f.broken != nil:
		return "denied: " + f.broken.words
	case f.allowed == nil:
		const silent = "denied: no policy of %s allows %q on bank %q"
		return fmt.Sprintf(silent, holder(s), q.Action, q.Bank)
	}
	const silent = "denied: scoping policy %q does not allow %q on bank %q"
	return fmt.Sprintf(silent, narrowers(s)[slices.Index(f.within, nil)].ID, q.Action, q.Bank)
}

// allowance returns the reason of an allow.
func (f findings) allowance() string {
	if len(f.within) == 0 {
		return "allowed by " + f.allowed.words
	}
	var within []string
	for _, n := range f.within {
		within = append(within, n.words)
	}
	return fmt.Sprintf("allowed by %s, within %s", f.allowed.words, strings.Join(within, " and "))
}

// closed returns the reason why a subject may do nothing, or "".
func closed(s policy.Subject) string {
	if s.Kind != policy.User && s.Kind != policy.ServiceAccount {
		return fmt.Sprintf("denied: %q is not a kind of principal", s.Kind)
	}
	return s.Closed
}

// denial returns a result without parameters. It marks the allows in the trace as overridden.
func denial(outcome policy.Outcome, reason string, trace []policy.Entry) policy.Result {
	for i := range trace {
		if trace[i].Code == policy.CodeAllowMatched {
			trace[i].Code = policy.CodeAllowOverridden
			trace[i].Reason += ", but is overridden: " + reason
		}
	}
	return policy.Result{Outcome: outcome, Reason: reason, Trace: trace}
}

// ownStrategy returns the text retain_strategy of parameters, if the table has it.
func (l *rules) ownStrategy(p policy.Parameters) (string, bool) {
	if l.schema.Index("retain_strategy") < 0 {
		return "", false
	}
	strategy, set := l.value(p, "retain_strategy").(string)
	return strategy, set
}

// conclude adds the strategy: the principal's own, else the bank's.
func (l *rules) conclude(
	reason string,
	p policy.Parameters,
	trace []policy.Entry,
	bank bank,
	q Request,
) policy.Result {
	var strategy *string
	if own, set := l.ownStrategy(p); set {
		strategy = &own
	} else if e, of := l.bankStrategy(bank, q); e != nil {
		strategy = of
		trace = append(trace, *e)
	}
	return policy.Result{
		Outcome: policy.Allow, Reason: reason, Parameters: p, Strategy: strategy, Trace: trace,
	}
}
