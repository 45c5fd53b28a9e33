package policy_test

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// member is a principal of a world that can be in a census. Its id is its number in the world.
type member struct {
	policy.Member
	policy.Subject
}

// drawnCensus returns a census of all principals of a world, including those that no store can
// hold: some are narrowed twice.
func drawnCensus(w *policytest.World) (census *policy.Census, members []member) {
	census = &policy.Census{Banks: w.BankPolicies, Shut: policy.Memory.Shut(w.BankPolicies)}
	for i, p := range w.Principals {
		if p.Kind == policy.User || p.Kind == policy.ServiceAccount {
			m := member{policy.Member{Kind: p.Kind, ID: fmt.Sprint(i)}, p.Subject}
			census.Add(given(m.Subject), m.Member)
			members = append(members, m)
		}
	}
	return census, members
}

func given(s policy.Subject) func() policy.Subject { return func() policy.Subject { return s } }

// asked draws a request that a list can answer. A list cannot hold the policy of a bank whose id looks like a pattern.
func asked(w *policytest.World) policytest.Request {
	q := w.Request()
	if strings.HasSuffix(q.Bank, "*") {
		q.BankPolicy = nil
	}
	return q
}

// Users in different groups, which a policy names, are no party. The order of grants makes none.
func TestGroupsThatAreNamed(t *testing.T) {
	census := &policy.Census{}
	p, q := func(group string) policy.Grant {
		return policy.Grant{PolicyID: "p", Group: group, Document: policytest.Document(on(allow("a:b"), "${group}"))}
	}, policy.Grant{PolicyID: "q"}
	for i, grants := range [][]policy.Grant{{p("a"), q}, {p("b"), q}, {q, p("b")}} {
		census.Add(given(policy.Subject{Kind: policy.User, Grants: grants}), policy.Member{Kind: policy.User, ID: fmt.Sprint(i)})
	}
	is.New(t).Equal(len(census.Parties), 2)
}

func TestCapabilitiesAreTheReference(t *testing.T) {
	seen := map[policy.Outcome]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		p := w.Principal()
		list, err := compiler.Compile(p.Subject).Capabilities(policy.Memory.Shut(w.BankPolicies))
		is.NoErr(err)
		is.True(slices.IsSortedFunc(list, func(a, b policy.Capability) int {
			return cmp.Or(strings.Compare(a.Action, b.Action), strings.Compare(a.Bank, b.Bank))
		}))
		for i, c := range list { // no element can be left out
			is.True(!sayAll(slices.Delete(slices.Clone(list), i, i+1), c.Action, c.Bank, c.Outcome, c.Parameters))
		}
		for range 20 {
			q := asked(w)
			want := policytest.Evaluate(p.Subject, q)
			if p.Kind == policy.Unmapped {
				want = policy.Result{Outcome: policy.ImplicitDeny}
			}
			is.True(sayAll(list, q.Action, q.Bank, want.Outcome, want.Parameters))
			if len(p.Subject.Scoping) > 1 {
				seen[want.Outcome]++
			}
		}
	})
	varied(t, seen[policy.Allow], seen[policy.ExplicitDeny], seen[policy.ImplicitDeny])
}

// TestCapabilitiesEnd: a list is as long as it may be, or an error. One capability may be of any size. What is
// equal as text is not equal as parameters.
func TestCapabilitiesEnd(t *testing.T) {
	each := func(all ...policytest.Statement) policy.Subject { // on its own bank
		for i := range all {
			all[i].Effect, all[i].Actions, all[i].Banks = "allow", []string{"a:b"}, []string{fmt.Sprint("b", i)}
		}
		return user(all...)
	}
	large := func(bytes int) policytest.Statement {
		return policytest.Statement{RetainTags: []string{strings.Repeat("t", bytes)}}
	}
	one, x := new(int64(1)), []string{"x"}
	for _, tc := range []struct {
		subject policy.Subject
		want    int // 0: too many
	}{
		{user(on(allow("a:b"), names("b", policy.MaxCapabilities)...)), policy.MaxCapabilities},
		{user(on(allow("a:b"), names("b", policy.MaxCapabilities+1)...)), 0},
		{each(large(3 << 20)), 1}, {each(large(1<<20), large(1<<19)), 2}, {each(large(1<<20), large(1<<20)), 0},
		{each(policytest.Statement{RecallMaxTokens: one}, policytest.Statement{RetainEveryNTurns: one}, policytest.Statement{LLMModel: "x"},
			policytest.Statement{LLMProvider: "x"}, policytest.Statement{RetainRoles: x}, policytest.Statement{RetainTags: x}), 6},
	} {
		list, err := compiler.Compile(tc.subject).Capabilities(nil)
		is.New(t).True(len(list) == tc.want && errors.Is(err, policy.ErrTooComplex) == (tc.want == 0))
		for _, c := range list[:min(len(list), 10)] {
			is.New(t).Equal(c.Parameters, policytest.Evaluate(tc.subject, policytest.Request{Action: c.Action, Bank: c.Bank}).Parameters)
		}
	}
}

// sayAll reports whether all capabilities that are closest to a request say this of it.
func sayAll(list []policy.Capability, action, bank string, outcome policy.Outcome, parameters policy.Parameters) bool {
	said := policytest.Closest(list, func(c policy.Capability) (string, string) { return c.Action, c.Bank }, action, bank)
	if said == nil {
		said = []policy.Capability{{Outcome: policy.ImplicitDeny}}
	}
	return !slices.ContainsFunc(said, func(c policy.Capability) bool {
		return c.Outcome != outcome || !reflect.DeepEqual(c.Parameters, parameters)
	})
}

// TestDiffIsTheReference compares principals that take each other's place, come and go, while one policy replaces
// another and those of banks may be mended.
func TestDiffIsTheReference(t *testing.T) {
	seen := map[policy.Change]int{}
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		before, members := drawnCensus(w)
		changed, document := w.Policies[w.IntN(len(w.Policies))].ID, policytest.Document(w.Statement(), w.Statement())
		after, later := &policy.Census{Banks: w.BankPolicies, Shut: policy.Memory.Shut(w.BankPolicies)}, slices.Clone(members)
		for i, m := range members {
			other := members[w.IntN(len(members))]
			if other.Member.Kind != m.Member.Kind || w.IntN(2) == 0 {
				other = m
			}
			later[i].Subject = rewritten(other.Subject, func(id string, raw []byte) []byte {
				if id == changed {
					return document
				}
				return raw
			})
			if w.IntN(8) == 0 {
				later[i].Subject = policy.Subject{Kind: m.Subject.Kind, Closed: "gone"}
				continue
			}
			after.Add(given(later[i].Subject), m.Member)
		}
		if w.IntN(2) == 0 {
			after.Shut = nil
		}
		if w.IntN(2) == 0 {
			before, members, after, later = after, later, before, members
		}
		evaluate := func(s policy.Subject, q policytest.Request, in *policy.Census) policy.Result {
			if in.Shut == nil {
				q.BankPolicy = nil
			}
			return policytest.Evaluate(s, q)
		}
		differences := map[policy.Member][]policy.Difference{}
		parties := compiler.Diff(before, after).Parties
		is.True(slices.IsSortedFunc(parties, func(a, b policy.PartyDiff) int { return a.Members[0].Compare(b.Members[0]) }))
		for _, party := range parties {
			is.True(slices.IsSortedFunc(party.Differences, func(a, b policy.Difference) int {
				return cmp.Or(strings.Compare(a.Action, b.Action), strings.Compare(a.Bank, b.Bank))
			}))
			for _, m := range party.Members {
				differences[m] = party.Differences
			}
		}
		for i, m := range members {
			q := asked(w)
			then, now := evaluate(m.Subject, q, before), evaluate(later[i].Subject, q, after)
			want := changeOf(then, now)
			said := []policy.Difference{{Change: policy.Unchanged}}
			if found := policytest.Closest(differences[m.Member], func(d policy.Difference) (string, string) { return d.Action, d.Bank }, q.Action, q.Bank); found != nil {
				said = found
			}
			for _, d := range said {
				is.Equal(d.Change, want)
				is.True(want == policy.Unchanged || reflect.DeepEqual(d.Before, then.Parameters) && reflect.DeepEqual(d.After, now.Parameters))
			}
			if len(m.Scoping) > 1 && len(later[i].Scoping) > 1 {
				seen[want]++
			}
		}
	})
	varied(t, seen[policy.NewlyAllowed], seen[policy.NewlyDenied], seen[policy.OtherParameters], seen[policy.Unchanged])
}

func changeOf(before, after policy.Result) policy.Change {
	switch then, now := before.Outcome == policy.Allow, after.Outcome == policy.Allow; {
	case then && !now:
		return policy.NewlyDenied
	case now && !then:
		return policy.NewlyAllowed
	case !reflect.DeepEqual(before.Parameters, after.Parameters):
		return policy.OtherParameters
	}
	return policy.Unchanged
}

// TestUnscopedAreThoseWhomNothingNarrows: all policies that narrow a principal count together.
func TestUnscopedAreThoseWhomNothingNarrows(t *testing.T) {
	all, more := allow("bank:*"), allow("bank:recall")
	more.RecallBudget = "low"
	document := policytest.Document
	for _, tc := range []struct {
		name    string
		subject policy.Subject
		idle    bool
	}{
		{"not narrowed", user(all), false},
		{"by what allows all", narrowed(user(all), document(all)), true},
		{"twice by what allows all", narrowed(narrowed(user(all), document(all)), document(all, more)), false},
		{"twice by nothing", narrowed(narrowed(user(all), document(all)), document(all)), true},
		{"by the second", narrowed(narrowed(user(all), document(all)), document(more)), false},
		{"an account, by the first", scoped(scoped(user(all), more), all), false},
		{"an account, by none", scoped(scoped(user(more), all), all), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			census := &policy.Census{}
			census.Add(given(tc.subject), policy.Member{Kind: tc.subject.Kind, ID: "m"})
			is.New(t).Equal(len(compiler.Lint(census).Unscoped) == 1, tc.idle)
		})
	}
}

// TestTies: only statements of different policies tie, and only where one parameter has two values and
// nothing but the ids of the policies decides.
func TestTies(t *testing.T) {
	model := func(name string) policytest.Statement {
		st := allow("bank:recall")
		st.LLMModel = name
		return st
	}
	grant := func(id string, priority int64, statements ...policytest.Statement) policy.Grant {
		return policy.Grant{PolicyID: id, Priority: priority, Document: policytest.Document(statements...)}
	}
	closer := model("m2")
	closer.Banks = []string{"b"}
	for _, tc := range []struct {
		name   string
		grants []policy.Grant
		ties   []string // losers and winners
	}{
		{"two values", []policy.Grant{grant("p", 0, model("m1")), grant("q", 0, model("m2"))}, []string{"p#0 q#0 llm_model a bank:recall *"}},
		{"one value", []policy.Grant{grant("p", 0, model("m1")), grant("q", 0, model("m1"))}, nil},
		{"one without a value", []policy.Grant{grant("p", 0, model("m1")), grant("q", 0, allow("bank:recall"))}, nil},
		{"a higher priority", []policy.Grant{grant("p", 0, model("m1")), grant("q", 1, model("m2"))}, nil},
		{"one by a group", []policy.Grant{grant("p", 0, model("m1")), {PolicyID: "q", Group: "g", Document: policytest.Document(model("m2"))}}, nil},
		{"a closer bank", []policy.Grant{grant("p", 0, model("m1")), grant("q", 0, closer)}, nil},
		{"one policy", []policy.Grant{grant("p", 0, model("m1"), model("m2"))}, nil},
	} {
		census := &policy.Census{}
		census.Add(given(policy.Subject{Kind: policy.User, Grants: tc.grants}), policy.Member{Kind: policy.User, ID: "m"}, policy.Member{Kind: policy.User, ID: "a"})
		var ties []string
		for _, tie := range compiler.Lint(census).Ties {
			ties = append(ties, fmt.Sprintf("%s#%d %s#%d %s %s %s %s", tie.Policy, tie.Statement, tie.Winner, tie.WinnerStatement, tie.Parameter, tie.Member.ID, tie.Action, tie.Bank))
		}
		expect.Holds(t, slices.Equal(ties, tc.ties), tc.name, ": the ties: ", ties, tc.ties)
	}
}

// TestNeedlessCanGo: without all needless statements every decision stays the same.
func TestNeedlessCanGo(t *testing.T) {
	gone, narrowedTwice := 0, 0
	forEachWorld(t, func(is *is.I, w *policytest.World) {
		census, members := drawnCensus(w)
		needless := map[string][]int{}
		found := compiler.Lint(census).Needless
		is.True(slices.IsSortedFunc(found, func(a, b policy.Needless) int {
			return cmp.Or(strings.Compare(a.Policy, b.Policy), cmp.Compare(a.Statement, b.Statement))
		}))
		for _, n := range found {
			needless[n.Policy] = append(needless[n.Policy], n.Statement)
			gone++
		}
		for _, m := range members {
			if len(needless) == 0 || m.Closed != "" || unreadable(m.Subject) {
				continue
			}
			rest := rewritten(m.Subject, func(id string, _ []byte) []byte {
				var left []policytest.Statement
				for i, st := range w.Policy(id).Statements {
					if !slices.Contains(needless[id], i) {
						left = append(left, st)
					}
				}
				return policytest.Document(left...)
			})
			q := asked(w)
			is.Equal(outcomeOf(policytest.Evaluate(m.Subject, q)), outcomeOf(policytest.Evaluate(rest, q)))
			if len(m.Scoping) > 1 {
				narrowedTwice++
			}
		}
	})
	varied(t, gone, narrowedTwice)
}

// TestDiffOfPublicAccess: each context has the differences of the overrides that are in force in it.
func TestDiffOfPublicAccess(t *testing.T) {
	is := is.New(t)
	census := func(b string) *policy.Census {
		document := `{"version":"2026-03-24","public_access":{"default":{"actions":["bank:recall"]},"overrides":[` +
			`{"scope":"topic","value":"a","actions":["bank:recall"]},{"scope":"topic","value":"b","actions":["` + b + `"]}]}}`
		return &policy.Census{Banks: []policy.Named{{ID: "notes", Document: []byte(document)}}}
	}
	found := compiler.Diff(census("bank:retain"), census("bank:recall")).Public
	is.Equal(len(found), 1)
	is.Equal(found[0].Context, policy.Context{Topic: "b"})
	changes := map[string]policy.Change{}
	for _, d := range found[0].Differences {
		changes[d.Action] = d.Change
	}
	is.Equal(changes, map[string]policy.Change{"bank:recall": policy.NewlyAllowed, "bank:retain": policy.NewlyDenied})

	of := func(fields string) *policy.Census {
		return &policy.Census{Banks: []policy.Named{{ID: "notes", Document: []byte(`{"version":"2026-03-24"` + fields + `}`)}}}
	}
	// Where the topic decides in one state, only channels that the other one names differ.
	channel := func(value string) string {
		return `{"scope":"channel","value":"` + value + `","actions":["bank:recall"]}`
	}
	one := of(`,"public_access":{"overrides":[` + channel("c") + `]}`)
	other := of(`,"public_access":{"overrides":[{"scope":"topic","value":"t","actions":["bank:retain"]},` + channel("d") + `]}`)
	is.Equal(len(compiler.Diff(one, other).Public), 4) // c, d, t, and t in c
	is.Equal(len(compiler.Diff(other, one).Public), 4)

	named := compiler.Diff(of(""), of(`,"default_strategy":"s"`)).Strategies
	is.Equal(len(named), 1)
	is.True(named[0].Before == nil && *named[0].After == "s")
	is.Equal(len(compiler.Diff(of(`,"default_strategy":"s"`), of(`,"default_strategy": "s"`)).Strategies), 0)
	is.Equal(len(compiler.Diff(of(`,"default_strategy":"s"`), &policy.Census{}).Strategies), 1)
	public := `,"public_access":{"default":{"actions":["a:0"`
	for i := range policy.MaxDifferences {
		public += fmt.Sprintf(`,"a:%d"`, i+1)
	}
	many := compiler.Diff(of(""), of(public+`]},"overrides":[{"scope":"topic","value":"t","actions":["b:c"]}]},"default_strategy":"s"`))
	is.Equal(len(many.Public), 1) // there is no room for the topic
	is.Equal(len(many.Strategies), 0)
	is.Equal(many.Omitted, 3)
}
