package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of a principal.
type Kind string

// The kinds. A subject of any other is denied everything.
const (
	User           Kind = "user"
	ServiceAccount Kind = "service_account"
	Unmapped       Kind = "unmapped" // a sender that belongs to no known user
)

// Grant is a policy that reaches a user, once for each way it does. The
// document of one policy is the same in all of them.
type Grant struct {
	PolicyID string
	Group    string // the group it is attached to; "": the user itself
	Priority int64
	Document []byte
}

// Named is a document and the policy (or, for a bank policy, the bank) it
// belongs to.
type Named struct {
	ID       string
	Document []byte
}

// Subject is who asks, with everything stored about them that counts.
type Subject struct {
	Kind             Kind
	ServiceAccountID string // of a service account
	// Closed, when not "", denies everything whatever the policies say, and is
	// the reason: an unknown user, an inactive owner, a scoping policy that is gone.
	Closed string
	// Grants are the user's, or those of a service account's owner, in any order.
	// An unmapped sender's are not looked at.
	Grants []Grant
	// Scoping are the policies that narrow the grants, in order: each has to allow what they allow. Empty: they count as they are.
	// Each may set parameters, as a service account's does.
	Scoping []Named
	// Narrowing are the policies that narrow what the grants and Scoping come to, in order, as an
	// API key's does: each has to allow it, and gives nothing. A parameter that is unset stays
	// unset. Budget and max_tokens become the lower, every_n the higher of both values, roles those
	// that both have, exclude_providers those that either has. The other parameters stay as they
	// are.
	Narrowing []Named
}

// narrowing returns all policies that narrow the grants, in order.
func (s *Subject) narrowing() []Named { return slices.Concat(s.Scoping, s.Narrowing) }

// Request is what is asked for.
type Request struct {
	Action, Bank string
	Context      Context
	Policy       *Bank // the policy of that bank; nil: it has none
}

// Context is where a request comes from, which overrides of a bank policy look at. An empty part matches none of
// them.
type Context struct {
	Provider, Channel, Topic string
}

// way is one policy as it reaches a subject.
type way struct {
	parsed
	policy   string
	via      string // as the trace shows it; "": it narrows, and via is the service account's
	words    string // as a sentence shows it, after "statement 0 of "
	limits   bool   // it is one of Subject.Narrowing
	direct   bool   // attached to the user itself
	priority int64
}

// statements are those of its document; none when that does not parse.
func (w *way) statements() []Statement {
	if w.document == nil {
		return nil
	}
	return w.document.Statements
}

// gather puts grants into gathering order: priority descending, policy id
// ascending, the user's own before the groups', group id ascending. A policy
// that comes twice the same way counts once, with its highest priority.
func gather(grants []Grant) []Grant {
	sorted := slices.SortedFunc(slices.Values(grants), func(a, b Grant) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority),
			strings.Compare(a.PolicyID, b.PolicyID),
			strings.Compare(a.Group, b.Group), // "" is the user, and comes first
		)
	})
	type reached struct{ policy, group string }
	seen := map[reached]bool{}
	return slices.DeleteFunc(sorted, func(g Grant) bool {
		r := reached{g.PolicyID, g.Group}
		again := seen[r]
		seen[r] = true
		return again
	})
}

func (g Grant) way(holder string) way {
	w := way{policy: g.PolicyID, priority: g.Priority}
	if g.Group == "" {
		w.direct = true
		w.via = "user"
		w.words = fmt.Sprintf("policy %q attached to %s", g.PolicyID, holder)
	} else {
		w.via = "group:" + g.Group
		w.words = fmt.Sprintf("policy %q through group %q", g.PolicyID, g.Group)
	}
	return w
}
