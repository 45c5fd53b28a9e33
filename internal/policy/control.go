package policy

import (
	"slices"
)

// controlPlane are the patterns of the actions that administer this service.
// They are asked for on controlBank.
var controlPlane = []string{"iam:*", "template:*"}

// controlBank stands for the service itself. Only the bank pattern "*" covers it.
const controlBank = "*"

// Permits reports whether the subject may do a control-plane action: its
// policies allow it on bank "*", or one of the vouched patterns, which the host
// answers for, covers it. A deny, a document that no longer parses (it may hold
// a deny) and a closed subject win over what is vouched; an unmapped sender is
// nobody to vouch for.
func Permits(s Subject, vouched []string, action string) bool {
	return read(s).permits(vouched, action)
}

func (s *subject) permits(vouched []string, action string) bool {
	if s.Closed != "" || s.Kind == Unmapped || s.broken() {
		return false
	}
	result := s.evaluate(Request{Action: action, Bank: controlBank})
	if result.Decision != ImplicitDeny {
		return result.Decision == Allow
	}
	_, ok := firstAction(vouched, action)
	return ok
}

// Within reports whether every control-plane action that target is permitted is
// also permitted to caller with what the host vouches for. If not, it returns
// one that exceeds: a literal, or a pattern, which stands for the actions under
// it that no narrower pattern of either side names.
//
// The answer is exact. Whether a pattern covers an action depends only on the
// action's class: a literal that some pattern names, or else the longest prefix
// that some pattern names. And every pattern is a member of its own class: a
// literal is itself, and "iam:users:*", read as an action, begins with
// "iam:users:" and is neither a literal nor begins with a longer prefix of any
// valid pattern. So it is enough to ask for each pattern as an action.
func Within(target, caller Subject, vouched []string) (exceeding string, ok bool) {
	t, c := read(target), read(caller)
	for _, action := range controlClasses(t.actions(), c.actions(), vouched) {
		if t.permits(nil, action) && !c.permits(vouched, action) {
			return action, false
		}
	}
	return "", true
}

// controlClasses returns one action of each class of control-plane actions that
// the patterns tell apart, sorted, so that the answer does not depend on order.
func controlClasses(patterns ...[]string) []string {
	all := slices.Concat(patterns...)
	classes := slices.Clone(controlPlane)
	for _, p := range all {
		if _, ok := firstAction(controlPlane, p); ok {
			classes = append(classes, p)
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// actions returns every action pattern of the subject's policies.
func (s *subject) actions() []string {
	var all []string
	for _, w := range slices.Concat(s.owner, s.scoping) {
		if w.fault == nil {
			for _, st := range w.document.Statements {
				all = append(all, st.Actions...)
			}
		}
	}
	return all
}

// broken reports whether a document of the subject does not parse.
func (s *subject) broken() bool {
	return slices.ContainsFunc(slices.Concat(s.owner, s.scoping), func(w way) bool { return w.fault != nil })
}
