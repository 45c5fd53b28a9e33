package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

func user(statements ...policytest.Statement) policy.Subject {
	return policy.Subject{Kind: policy.User, Grants: []policy.Grant{{PolicyID: "p", Document: policytest.Document(statements...)}}}
}

func allow(actions ...string) policytest.Statement {
	return policytest.Statement{Effect: "allow", Actions: actions, Banks: []string{"*"}}
}

func deny(actions ...string) policytest.Statement {
	return policytest.Statement{Effect: "deny", Actions: actions, Banks: []string{"*"}}
}

func scoped(s policy.Subject, statements ...policytest.Statement) policy.Subject {
	s.Kind = policy.ServiceAccount
	return narrowed(s, policytest.Document(statements...))
}

func narrowed(s policy.Subject, document []byte) policy.Subject {
	s.Scoping = append(slices.Clone(s.Scoping), policy.Named{ID: fmt.Sprint("s", len(s.Scoping)), Document: document})
	return s
}

func closed(s policy.Subject) policy.Subject {
	s.Closed = "closed"
	return s
}

func TestPermits(t *testing.T) {
	broken := policy.Subject{Kind: policy.User, Grants: []policy.Grant{{PolicyID: "p", Document: []byte("{")}}}
	brokenScoping := narrowed(user(allow("iam:*")), []byte("{"))
	oneBank := allow("iam:*")
	oneBank.Banks = []string{"a::*", "a"}
	for _, tc := range []struct {
		name    string
		subject policy.Subject
		vouched []string
		action  string
		want    bool
	}{
		{"stored", user(allow("iam:*")), nil, "iam:users:read", true},
		{"nothing stored", user(), nil, "iam:users:read", false},
		{"stored for some banks only", user(oneBank), nil, "iam:users:read", false},
		{"vouched", user(), []string{"template:admin", "iam:users:*"}, "iam:users:read", true},
		{"vouched without a row", policy.Subject{Kind: policy.User}, []string{"iam:*"}, "iam:users:read", true},
		{"another is vouched", user(), []string{"iam:users:write"}, "iam:users:read", false},
		{"a star is all of the control plane", user(), []string{"*"}, "iam:users:read", true},
		{"templates too", user(), []string{"bank:recall", "*"}, "template:admin", true},
		{"and no more than that", user(), []string{"*"}, "bank:recall", false},
		{"nor what only begins like it", user(), []string{"*"}, "iamb:users:read", false},
		{"a star within a pattern", user(), []string{"iam*", "*:read", "iam:*:read", "**", ""}, "iam:users:read", false},
		{"a stored deny wins over a star", user(deny("iam:users:read")), []string{"*"}, "iam:users:read", false},
		{"a closed subject wins over a star", closed(user(allow("iam:*"))), []string{"*"}, "iam:users:read", false},
		{"a stored deny wins over what is vouched", user(deny("iam:users:read")), []string{"iam:*"}, "iam:users:read", false},
		{"a closed subject", closed(user(allow("iam:*"))), []string{"iam:*"}, "iam:users:read", false},
		{"a document that does not parse", broken, []string{"iam:*"}, "iam:users:read", false},
		{"a scoping document that does not parse", brokenScoping, []string{"iam:*"}, "iam:users:read", false},
		{"owner and scoping", scoped(user(allow("iam:*")), allow("iam:users:*")), nil, "iam:users:read", true},
		{"owner alone", scoped(user(allow("iam:*")), allow("template:*")), nil, "iam:users:read", false},
		{"owner and one of two scopings", scoped(scoped(user(allow("iam:*")), allow("iam:*")), allow("template:*")), nil, "iam:users:read", false},
		{"owner and both scopings", scoped(scoped(user(allow("iam:*")), allow("iam:*")), allow("iam:users:*")), nil, "iam:users:read", true},
		{"the second scoping does not parse", narrowed(scoped(user(allow("iam:*")), allow("iam:*")), []byte("{")), []string{"iam:*"}, "iam:users:read", false},
		{"scoping denies what is vouched", scoped(user(), deny("iam:*")), []string{"iam:*"}, "iam:users:read", false},
		{"an unmapped sender", policy.Subject{Kind: policy.Unmapped}, []string{"iam:*"}, "iam:users:read", false},
		{"an unknown kind", policy.Subject{Kind: "robot"}, []string{"iam:*"}, "iam:users:read", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is.New(t).Equal(compiler.Compile(tc.subject).Permits(tc.vouched, tc.action), tc.want)
		})
	}
}

func unread(s policy.Subject) policy.Subject {
	s.Grants = append(slices.Clone(s.Grants), policy.Grant{PolicyID: "unread", Document: []byte("{")})
	return s
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		name           string
		target, caller policy.Subject
		vouched        []string
		want           string
	}{
		{"nothing within nothing", user(), user(), nil, ""},
		{"a literal within a prefix", user(allow("iam:users:read")), user(allow("iam:*")), nil, ""},
		{"a prefix beyond a literal", user(allow("iam:users:*")), user(allow("iam:users:read")), nil, "iam:users:*"},
		{"a prefix beyond a longer one", user(allow("iam:*")), user(allow("iam:users:*")), nil, "iam:*"},
		{"a prefix less what both lack", user(allow("iam:*"), deny("iam:users:*")), user(allow("iam:*"), deny("iam:users:*")), nil, ""},
		{"a hole in the caller's", user(allow("iam:*")), user(allow("iam:*"), deny("iam:users:read")), nil, "iam:users:read"},
		{"the same hole in the target's", user(allow("iam:*"), deny("iam:users:*")), user(allow("iam:*"), deny("iam:users:read")), nil, ""},
		{"vouched", user(allow("iam:*")), user(), []string{"iam:*"}, ""},
		{"a star is vouched", user(allow("iam:*", "template:admin")), user(), []string{"*"}, ""},
		{"a star, less what is denied", user(allow("iam:*")), user(deny("iam:users:read")), []string{"*"}, "iam:users:read"},
		{"vouched is not enough", user(allow("iam:*", "template:admin")), user(), []string{"iam:*"}, "template:admin"},
		{"the data plane does not count", user(allow("bank:*")), user(), nil, ""},
		{"one who is closed exceeds nobody", closed(user(allow("iam:*"))), user(), nil, ""},
		{"a closed caller", user(allow("iam:users:read")), closed(user(allow("iam:*"))), []string{"iam:*"}, "iam:users:read"},
		{"a narrowed caller", user(allow("iam:users:read")), scoped(user(allow("iam:*")), allow("iam:users:write")), nil, "iam:users:read"},
		{"a hole in what narrows the caller", user(allow("iam:*")), scoped(user(allow("iam:*")), allow("iam:*"), deny("iam:users:read")), nil, "iam:users:read"},
		{"what cannot be read may permit anything", unread(user(allow("iam:users:read"))), user(allow("iam:*")), nil, "template:*"},
		{"what cannot be read is within everything", unread(user()), user(allow("iam:*", "template:*")), nil, ""},
		{"a caller who cannot be read", user(allow("iam:users:read")), unread(user(allow("iam:*"))), []string{"iam:*"}, "iam:users:read"},
		{"a user that is narrowed is within itself", narrowed(user(allow("iam:*")), policytest.Document(allow("iam:users:*"))), user(allow("iam:users:*")), nil, ""},
		{"a hole in the second that narrows the caller", user(allow("iam:*")), scoped(scoped(user(allow("iam:*")), allow("iam:*")), allow("iam:*"), deny("iam:users:read")), nil, "iam:users:read"},
		{"narrowed by what cannot be read", narrowed(user(allow("iam:*")), []byte("{")), user(allow("iam:*")), nil, "template:*"},
		{"control characters are actions too", user(allow("template:\x01")), user(allow("template:admin")), nil, "template:\x01"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is := is.New(t)
			exceeding, ok := policy.Within(compiler.Compile(tc.target), compiler.Compile(tc.caller), tc.vouched)
			is.Equal(exceeding, tc.want)
			is.Equal(ok, tc.want == "")
		})
	}
}

// TestVouch: on bank "*", a vouched pattern turns a denial into an allow if no stored data demands
// the denial. It changes no other decision.
func TestVouch(t *testing.T) {
	vouched := 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p, q := w.Principal(), w.Request()
		if w.IntN(2) == 0 {
			q.Bank, q.BankPolicy = "*", nil
		}
		actions, _ := patternsOf(w)
		everything := w.IntN(4) == 0
		if everything {
			actions = append(slices.Clone(actions), "*")
		}
		rights := compiler.Compile(p.Subject)
		d := decide(rights, q)
		got := d.Vouch(actions)
		firm := p.Subject.Closed != "" || p.Kind != policy.User && p.Kind != policy.ServiceAccount || broken(w, p.Subject, q)
		covered := slices.ContainsFunc(actions, func(a string) bool { return policy.MatchAction(a, q.Action) }) ||
			everything && (strings.HasPrefix(q.Action, "iam:") || strings.HasPrefix(q.Action, "template:"))
		if q.Bank != "*" || d.Outcome() != policy.ImplicitDeny || firm || !covered {
			is.Equal(got, d)
			return
		}
		vouched++
		is.True(got.Allowed())
		is.Equal(got.Parameters(), policy.Parameters(nil))
		is.True(got.Reason() != "")
		is.Equal(d.Vouch(nil), d)
	})
	varied(t, vouched)
}

// TestWithinIsExact compares Within with asking for every action.
func TestWithinIsExact(t *testing.T) {
	seen := map[bool]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		target, caller := w.Principal().Subject, w.Principal().Subject
		if w.IntN(2) == 0 {
			target.Grants = append(slices.Clone(target.Grants), caller.Grants...)
		} else {
			caller.Grants = append(slices.Clone(caller.Grants), target.Grants...)
		}
		patterns, _ := patternsOf(w)
		vouched := patterns[:w.IntN(3)%(len(patterns)+1)]

		t, c := compiler.Compile(target), compiler.Compile(caller)
		anything := target.Closed == "" && unreadable(target)
		exceeds := func(action string) bool { return (anything || t.Permits(nil, action)) && !c.Permits(vouched, action) }
		exceeding, ok := policy.Within(t, c, vouched)
		is.Equal(ok, !slices.ContainsFunc(controlActions(patterns), exceeds))
		is.Equal(ok, exceeding == "")
		is.True(ok || exceeds(exceeding))
		seen[ok]++
	})
	varied(t, seen[true], seen[false])
}

// unreadable reports whether a document of the subject does not parse.
func unreadable(s policy.Subject) bool {
	return (s.Kind == policy.User || s.Kind == policy.ServiceAccount) && slices.ContainsFunc(documents(s), faulty)
}

func documents(s policy.Subject) (all [][]byte) {
	for _, g := range s.Grants {
		all = append(all, g.Document)
	}
	for _, n := range slices.Concat(s.Scoping, s.Narrowing) {
		all = append(all, n.Document)
	}
	return all
}

func faulty(document []byte) bool {
	_, err := policy.Memory.ParseDocument(document)
	return err != nil
}

// controlActions returns at least one control-plane action of each class that the patterns
// distinguish: each pattern as it is, its beginnings, and some continuations.
func controlActions(patterns []string) []string {
	var all []string
	for _, p := range append(patterns, "iam:*", "template:*") {
		prefix := strings.TrimSuffix(p, "*")
		for _, a := range []string{p, prefix, prefix + "x", prefix + "x:", prefix + "users:x", prefix + "users:read"} {
			if strings.HasPrefix(a, "iam:") || strings.HasPrefix(a, "template:") {
				all = append(all, a)
			}
		}
	}
	return all
}
