package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of a principal.
type Kind string

// The kinds. A subject of any other kind is denied everything.
const (
	User           Kind = "user"
	ServiceAccount Kind = "service_account"
	Unmapped       Kind = "unmapped" // a sender that belongs to no known user
)

// Grant is a policy that reaches a user. A policy has one grant for each way that it reaches the
// user, all with the same document.
type Grant struct {
	PolicyID string
	Group    string // the group it is attached to; "": the user itself
	Priority int64
	Document []byte
}

// Named is a document with the id of its policy, or of its bank for a bank policy.
type Named struct {
	ID       string
	Document []byte
}

// Subject is the principal that asks, with all stored data that counts.
type Subject struct {
	Kind             Kind
	ServiceAccountID string // of a service account
	// UserID is the value of UserVariable: the user, or the owner of a service account. "":
	// patterns with that variable cover nothing.
	UserID string
	// Closed, when not "", denies everything whatever the policies say. It is the reason of the
	// denial: an unknown user, an inactive owner, a deleted scoping policy.
	Closed string
	// Grants are those of the user, or of a service account's owner, in any order. The grants of an
	// unmapped sender are ignored.
	Grants []Grant
	// Scoping lists, in order, the policies that narrow the grants: each must also allow what the
	// grants allow. Empty: the grants are not narrowed. Each policy may set parameters, as a
	// service account's scoping policy does.
	Scoping []Named
	// Narrowing lists, in order, the policies that narrow the result of the grants and Scoping, as
	// an API key's policy does. Each must also allow the request, and gives no parameters. An unset
	// parameter stays unset. The others are narrowed as [Parameter].Narrow says. Those with Append
	// and Replace do not change.
	Narrowing []Named
}

// narrowing returns all policies that narrow the grants, in order.
func (s *Subject) narrowing() []Named { return slices.Concat(s.Scoping, s.Narrowing) }

// Request is a question to Explain.
type Request struct {
	Action, Bank string
	Context      Context
	Policy       *Bank // the policy of that bank; nil: it has none
}

// Context says where a request comes from. Overrides of a bank policy match it. An empty part
// matches no override.
type Context struct {
	Provider, Channel, Topic string
}

// attachedBy is one policy as it reaches a subject.
type attachedBy struct {
	parsed
	policy   string
	via      string // Via of the trace, before granted; "": a narrowing policy
	granted  string // the group that grants the policy; "": none
	holder   string // of a grant, in a sentence
	limits   bool   // the policy belongs to Subject.Narrowing
	direct   bool   // attached to the user itself
	priority int64
}

// statements returns the statements of the document; none when it does not parse.
func (w *attachedBy) statements() []Statement {
	if w.document == nil {
		return nil
	}
	return w.document.Statements
}

// gather puts grants into gathering order: priority descending, then policy id ascending, then the
// user's own before the groups', then group id ascending. A policy that comes twice the same way
// counts once, with its highest priority.
func gather(grants []Grant) []Grant {
	sorted := slices.SortedFunc(slices.Values(grants), func(a, b Grant) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority),
			strings.Compare(a.PolicyID, b.PolicyID),
			strings.Compare(a.Group, b.Group), // "" is the user, and comes first
		)
	})
	type reached struct{ policy, group string }
	return once(sorted, func(g Grant) reached { return reached{g.PolicyID, g.Group} })
}

// words is the policy in a sentence, after "statement 0 of ".
func (w *attachedBy) words() string {
	switch {
	case w.via == "":
		return fmt.Sprintf("scoping policy %q", w.policy)
	case w.direct:
		return fmt.Sprintf("policy %q attached to %s", w.policy, w.holder)
	}
	return fmt.Sprintf("policy %q through group %q", w.policy, w.granted)
}
