package policytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/extsvc/svc/internal/policy"
)

// engineFaults break the code around the engine: its input, its caches, and the use of its answers.
var engineFaults = map[string]func(engine) engine{
	"scoping is not asked":   subject(func(s *policy.Subject) { s.Scoping = nil }),
	"narrowing is not asked": subject(func(s *policy.Subject) { s.Narrowing = nil }),
	"narrowing gives parameters": subject(func(s *policy.Subject) {
		s.Scoping, s.Narrowing = append(slices.Clone(s.Scoping), s.Narrowing...), nil
	}),
	"scoping gives no parameters": subject(func(s *policy.Subject) {
		s.Scoping, s.Narrowing = nil, append(slices.Clone(s.Scoping), s.Narrowing...)
	}),
	"an unknown kind is a user": subject(func(s *policy.Subject) { s.Kind = cmp.Or(kinds[s.Kind], policy.User) }),
	"an unmapped sender has its grants": subject(func(s *policy.Subject) {
		if s.Kind == policy.Unmapped {
			s.Kind = policy.User
		}
	}),
	"a service account is a user": subject(func(s *policy.Subject) { s.Kind = policy.User }),
	"a user is not narrowed": subject(func(s *policy.Subject) {
		if s.Kind == policy.User {
			s.Scoping = nil
		}
	}),
	"the first scoping policy alone is asked": subject(func(s *policy.Subject) { s.Scoping = s.Scoping[:min(1, len(s.Scoping))] }),
	"the last scoping policy alone is asked":  subject(func(s *policy.Subject) { s.Scoping = s.Scoping[max(0, len(s.Scoping)-1):] }),
	"two scoping policies are enough":         subject(func(s *policy.Subject) { s.Scoping = s.Scoping[:min(2, len(s.Scoping))] }),
	"the last scoping policy comes first":     subject(func(s *policy.Subject) { s.Scoping = reversed(s.Scoping) }),
	"a scoping policy that comes twice counts once": subject(func(s *policy.Subject) {
		s.Scoping = slices.CompactFunc(slices.Clone(s.Scoping), func(a, b policy.Named) bool { return a.ID == b.ID })
	}),
	"groups do not count": subject(func(s *policy.Subject) {
		s.Grants = without(s.Grants, func(g policy.Grant) bool { return g.Group != "" })
	}),
	"a negative priority does not count": subject(func(s *policy.Subject) {
		s.Grants = without(s.Grants, func(g policy.Grant) bool { return g.Priority < 0 })
	}),
	"a sender cannot be closed": subject(func(s *policy.Subject) { s.Closed = map[bool]string{false: s.Closed}[s.Kind == policy.Unmapped] }),

	"the context is not looked at":     request(func(q *Request) { q.Provider, q.Channel, q.Topic = "", "", "" }),
	"a channel is taken for a topic":   request(func(q *Request) { q.Topic, q.Channel = q.Channel, q.Topic }),
	"a broken bank policy is left out": request(func(q *Request) { q.BankPolicy = parsing(q.BankPolicy) }),
	"a bank policy is another bank's":  request(func(q *Request) { q.BankPolicy = named(q.BankPolicy, "project") }),
	"bytes that are no UTF-8 are replaced": request(func(q *Request) {
		q.Action, q.Bank = strings.ToValidUTF8(q.Action, "?"), strings.ToValidUTF8(q.Bank, "?")
	}),
	"a long action is cut": request(func(q *Request) { q.Action = q.Action[:min(len(q.Action), 128)] }),

	"an override that says no is not final": notFinal,
	"an old policy is kept":                 remembering(func(s policy.Subject, q Request) string { return ids(s) + asked(q) }),
	"priorities are not part of a table":    remembering(func(s policy.Subject, q Request) string { return rights(s, false) + asked(q) }),
	"a class is what stands before a colon": remembering(func(s policy.Subject, q Request) string {
		q.Action = q.Action[:strings.LastIndex(q.Action, ":")+1]
		return rights(s, true) + asked(q)
	}),
	"a class is what stands before two colons": remembering(func(s policy.Subject, q Request) string {
		q.Bank = q.Bank[:max(0, strings.LastIndex(q.Bank, "::"))]
		return rights(s, true) + asked(q)
	}),
	"the bank's policy is not part of what is kept": remembering(func(s policy.Subject, q Request) string {
		q.BankPolicy = nil
		return rights(s, true) + asked(q)
	}),
	"one with another scoping policy is the same": remembering(func(s policy.Subject, q Request) string {
		s.Scoping = make([]policy.Named, len(s.Scoping))
		return rights(s, true) + asked(q)
	}),
	"one with another second scoping policy is the same": remembering(func(s policy.Subject, q Request) string {
		s.Scoping = s.Scoping[:min(1, len(s.Scoping))]
		return rights(s, true) + asked(q)
	}),
	"the order of scoping policies is not part of a table": remembering(func(s policy.Subject, q Request) string {
		s.Scoping = slices.SortedFunc(slices.Values(s.Scoping), func(a, b policy.Named) int { return strings.Compare(a.ID, b.ID) })
		return rights(s, true) + asked(q)
	}),

	"a denial carries parameters": answering(func(a *answer) {
		for _, e := range a.explained.Trace {
			if e.Code == policy.CodeAllowOverridden {
				a.explained.Parameters = e.Sets
			}
		}
	}),
	"Decide has another reason": answering(func(a *answer) { a.decided.Reason = strings.ReplaceAll(a.decided.Reason, "within", "in") }),
	"Decide allows what is closed": answering(func(a *answer) {
		if strings.Contains(a.decided.Reason, "inactive") {
			a.decided.Outcome = policy.Allow
		}
	}),
	"Decide has no strategy": answering(func(a *answer) { a.decided.Strategy = nil }),
	"Decide has no empty list": answering(func(a *answer) {
		for i, v := range a.decided.Parameters {
			if list, is := v.([]string); is && len(list) == 0 {
				a.decided.Parameters[i] = nil
			}
		}
	}),
	"Explain leaves out what is idle": answering(func(a *answer) {
		a.explained.Trace = slices.DeleteFunc(a.explained.Trace, func(e policy.Entry) bool { return !e.Matched })
	}),
	"Explain names no loser":        eachEntry(func(e *policy.Entry) { clear(e.Lost) }),
	"Explain shows no bank pattern": eachEntry(func(e *policy.Entry) { e.BankPattern = nil }),
	"Explain tells no codes apart": eachEntry(func(e *policy.Entry) {
		e.Code = strings.Replace(e.Code, policy.CodeBankNotMatched, policy.CodeActionNotMatched, 1)
	}),
	"Explain shows what does not match": eachEntry(func(e *policy.Entry) { e.Matched = e.Matched || e.Code == policy.CodeBankNotMatched }),
	"Explain shows no sets":             eachEntry(func(e *policy.Entry) { e.Sets = nil }),
	"Explain loses the index":           eachEntry(func(e *policy.Entry) { e.Statement = min(e.Statement, 2) }),
}

var kinds = map[policy.Kind]policy.Kind{
	policy.User: policy.User, policy.ServiceAccount: policy.ServiceAccount, policy.Unmapped: policy.Unmapped,
}

func subject(blind func(*policy.Subject)) func(engine) engine {
	return func(e engine) engine {
		return func(s policy.Subject, q Request) answer {
			blind(&s)
			return e(s, q)
		}
	}
}

func request(blind func(*Request)) func(engine) engine {
	return func(e engine) engine {
		return func(s policy.Subject, q Request) answer {
			blind(&q)
			return e(s, q)
		}
	}
}

func answering(spoil func(*answer)) func(engine) engine {
	return func(e engine) engine {
		return func(s policy.Subject, q Request) answer {
			a := e(s, q)
			spoil(&a)
			return a
		}
	}
}

func eachEntry(spoil func(*policy.Entry)) func(engine) engine {
	return answering(func(a *answer) {
		for i := range a.explained.Trace {
			spoil(&a.explained.Trace[i])
		}
	})
}

// remembering gives the first decision for a key to all later requests with that key, but with the
// reason of each request.
func remembering(key func(policy.Subject, Request) string) func(engine) engine {
	var kept sync.Map
	return func(e engine) engine {
		return func(s policy.Subject, q Request) answer {
			a := e(s, q)
			first, _ := kept.LoadOrStore(key(s, q), a)
			decided := first.(answer).decided
			decided.Reason = a.decided.Reason
			a.decided = decided
			return a
		}
	}
}

// notFinal uses the public default when an override does not list the action.
func notFinal(e engine) engine {
	return func(s policy.Subject, q Request) answer {
		a := e(s, q)
		if strings.HasPrefix(a.explained.Reason, "denied: public override") {
			q.Provider, q.Channel, q.Topic = "", "", ""
			return e(s, q)
		}
		return a
	}
}

// asked returns the parts of a request that count.
func asked(q Request) string {
	if q.BankPolicy == nil {
		return fmt.Sprintf("%q %q", q.Action, q.Bank)
	}
	return fmt.Sprintf("%q %q %q %q %q %q %s", q.Action, q.Bank, q.Provider, q.Channel, q.Topic, q.BankPolicy.ID, q.BankPolicy.Document)
}

// ids returns the ids of a subject's policies.
func ids(s policy.Subject) string {
	out := fmt.Sprint(s.Kind, s.Closed, len(s.Scoping) > 0)
	for _, g := range s.Grants {
		out += fmt.Sprintf("|%q %q", g.PolicyID, g.Group)
	}
	return out
}

// rights returns all of a subject, with or without priorities.
func rights(s policy.Subject, priorities bool) string {
	out := ids(s) + s.ServiceAccountID
	for _, g := range s.Grants {
		out += string(g.Document)
		if priorities {
			out += fmt.Sprint(g.Priority)
		}
	}
	for _, n := range s.Scoping {
		out += fmt.Sprintf("|%q %s", n.ID, n.Document)
	}
	return out
}

func reversed(scopings []policy.Named) []policy.Named {
	scopings = slices.Clone(scopings)
	slices.Reverse(scopings)
	return scopings
}

func without(grants []policy.Grant, which func(policy.Grant) bool) []policy.Grant {
	return slices.DeleteFunc(slices.Clone(grants), which)
}

func parsing(n *policy.Named) *policy.Named {
	if n != nil && law.readBank(n).fault != nil {
		return nil
	}
	return n
}

func named(n *policy.Named, id string) *policy.Named {
	if n == nil || n.ID == id {
		return n
	}
	return &policy.Named{ID: id, Document: n.Document}
}
