package policy

import (
	"slices"
)

// controlPlane are the patterns of the actions that administer this service. Requests for them name
// controlBank.
var controlPlane = []string{"iam:*", "template:*"}

// allControl is the pattern of a host that vouches for the whole control plane. No policy may
// contain it.
const allControl = "*"

// ValidVouch reports what is wrong with a pattern that a host vouches for. A valid pattern is "*",
// or one that is valid in a policy ([ValidAction]).
func ValidVouch(pattern string) error {
	if pattern == allControl {
		return nil
	}
	return ValidAction(pattern)
}

// vouches reports whether a vouched pattern covers an action. An invalid pattern covers nothing.
func vouches(pattern, action string) bool {
	if pattern == allControl {
		return administrative(action)
	}
	return MatchAction(pattern, action)
}

// controlBank stands for the service itself. Only the bank pattern "*" covers it.
const controlBank = "*"

// Permits reports whether the subject may do a control-plane action. It may when its policies allow
// the action on bank "*", or when one of the vouched patterns covers it. The host is responsible
// for the vouched patterns.
//
// A deny, a closed subject, and a document that no longer parses (it may hold a deny) win over a
// vouched pattern. An unmapped sender cannot be vouched for.
func (r *Rights) Permits(vouched []string, action string) bool {
	return r.Decide(action, controlBank, &Context{}, nil).Vouch(vouched).Allowed()
}

// Within reports whether every control-plane action permitted to target is also permitted to
// caller, with the vouched patterns of the host. If not, it returns one action that exceeds. That
// is a literal, or a pattern for the actions under it that no narrower pattern of either side
// names.
//
// The answer is exact. Whether a pattern covers an action depends only on the action's class, and
// every pattern is in its own class. A literal is itself. "iam:users:*", read as an action,
// begins with "iam:users:" and is neither a literal nor begins with a longer prefix of any valid
// pattern. So it is enough to ask for each pattern as an action.
//
// A document of the target that does not parse may permit anything once it is repaired. It
// therefore counts as permitting everything.
func Within(target, caller *Rights, vouched []string) (exceeding string, ok bool) {
	c := newControl(vouched, target, caller)
	for _, action := range c.classes {
		if (target.unread() || c.permits(0, nil, action)) && !c.permits(1, vouched, action) {
			return action, false
		}
	}
	return "", true
}

// Uncovered reports whether a subject of before and after is newly permitted a control-plane
// action, given the same vouched patterns: a deny that is gone uncovers them. It returns one such
// action, as Within does, and is exact as well.
func Uncovered(before, after *Rights, vouched []string) (action string, ok bool) {
	c := newControl(vouched, before, after)
	for _, action := range c.classes {
		if c.permits(1, vouched, action) && !c.permits(0, vouched, action) {
			return action, true
		}
	}
	return "", false
}

// control answers Permits of some rights for many actions. It reads each statement once.
type control struct {
	index
	classes []string // see controlClasses
	of      []*Rights
	holders []*holder
}

func newControl(vouched []string, of ...*Rights) *control {
	c := &control{of: of}
	patterns, documents := [][]string{vouched}, []*Document{}
	for _, r := range of {
		h := &holder{}
		patterns, c.holders = append(patterns, r.actions()), append(c.holders, h)
		if r.table == nil || r.table.broken() {
			continue
		}
		for _, ways := range r.table.sides {
			side := []*Document{}
			for _, w := range ways {
				side = append(side, w.document)
			}
			h.sides, documents = append(h.sides, side), append(documents, side...)
		}
	}
	c.classes = controlClasses(patterns...)
	controls := func(st *Statement) bool { return st.controls() }
	statements, numbers := collect(documents, controls)
	statements = append(statements, &Statement{Actions: c.classes})
	for _, h := range c.holders {
		h.read(statements, numbers)
	}
	c.index = newIndex(nil, statements, nil)
	return c
}

// permits is Permits of some rights. The action is one of the classes.
func (c *control) permits(of int, vouched []string, action string) bool {
	if c.of[of].closed != nil {
		return false
	}
	// The statements that count are all about controlBank.
	h, covering := c.holders[of], c.covering[c.actions.named(action)]
	switch {
	case h.denied(covering, covering):
		return false
	case h.allowed(covering, covering):
		return true
	}
	return slices.ContainsFunc(vouched, func(p string) bool { return vouches(p, action) })
}

// controlClasses returns one action of each class of control-plane actions that the patterns
// distinguish. They are sorted, so the answer does not depend on order.
func controlClasses(patterns ...[]string) []string {
	classes := slices.Clone(controlPlane)
	for _, p := range slices.Concat(patterns...) {
		if administrative(p) {
			classes = append(classes, p)
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// actions returns every action pattern of the subject's policies.
func (r *Rights) actions() []string {
	if r.table == nil {
		return nil
	}
	return r.table.actions.names
}

// unread reports whether a document of a subject that is not closed does not parse.
func (r *Rights) unread() bool {
	return r.closed == nil && r.table != nil && r.table.broken()
}
