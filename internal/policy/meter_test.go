package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

func names(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// overridden returns the policy of a bank with n overrides of each scope, each two with an action of their own.
func overridden(n int, scopes ...string) *policy.Named {
	text := ""
	for i := range n * len(scopes) {
		text += fmt.Sprintf(`,{"scope":%q,"value":"%d","actions":["a%d"]}`, scopes[i/n], i, i/2)
	}
	return &policy.Named{ID: "b", Document: []byte(`{"version":"2026-03-24","public_access":{"overrides":[` + text[1:] + `]}}`)}
}

// TestNoWorkIsAProduct: what a caller makes n times costs far less than n times n steps.
func TestNoWorkIsAProduct(t *testing.T) {
	wide := func(n int) *policy.Subject {
		return new(user(on(policytest.Statement{Effect: "deny", Actions: names("a", n)}, names("b", n)...)))
	}
	single := func(n int) *policy.Subject {
		var all []policytest.Statement
		for i := range n {
			all = append(all, on(deny(fmt.Sprint("a", i)), fmt.Sprint("b", i)))
		}
		return new(user(all...))
	}
	everything := &policy.Grantor{Subject: user(allow("iam:*")), Banks: false}
	for name, do := range map[string]func(c *policy.Compiler, n int){
		"a wide deny":        func(c *policy.Compiler, n int) { c.Exceeds(everything, wide(n), new(user()), nil) },
		"denies of one each": func(c *policy.Compiler, n int) { c.Exceeds(everything, single(n), new(user()), nil) },
		"topics and channels": func(c *policy.Compiler, n int) {
			c.Limit(30_000_000) // not for a context of each override, for each action
			c.ExceedsPublic(everything, overridden(n/32, "topic", "channel"), overridden(n/32, "topic", "channel"))
		},
	} {
		c := policy.NewCompiler(policy.Memory).Apart(t.Context())
		do(c, 8000)
		expect.Equal(t, name, c.Err(), nil)
	}
	c := policy.NewCompiler(policy.Memory).Apart(t.Context())
	c.Exceeds(everything, single(16_000), new(user()), nil)
	expect.Holds(t, errors.Is(c.Err(), policy.ErrTooComplex), "its sets have a bound of memory")
	c = policy.NewCompiler(policy.Memory).Apart(t.Context())
	c.Limit(1_000_000) // a fraction of all pairs of patterns
	kept, gone, all := on(allow("x:y"), names("c", 2000)...), on(deny("x:y"), names("b", 2000)...), user(allow("bank:*"))
	c.Exceeds(&policy.Grantor{Subject: all}, new(user(kept, gone)), new(user(kept)), nil)
	expect.Holds(t, errors.Is(c.Err(), policy.ErrTooComplex), "to compare every two patterns is work")
}

// TestWithinReadsStatementsOnce: thousands of denies are no product.
func TestWithinReadsStatementsOnce(t *testing.T) {
	var all []policytest.Statement
	for i := range 8000 {
		all = append(all, deny(fmt.Sprint("iam:a", i)))
	}
	c := policy.NewCompiler(policy.Memory)
	target, caller := c.Compile(user(append(all, allow("iam:*"))...)), c.Compile(user(append(all, allow("iam:*"))...))
	cost := testing.AllocsPerRun(1, func() {
		if _, ok := policy.Within(target, caller, nil); !ok {
			t.Error("equal rights are not within")
		}
	})
	expect.Holds(t, cost <= 100_000, "allocations: ", cost)
}

// TestWeight: what decides about a user takes about as many bytes as its documents, and holds each document once.
func TestWeight(t *testing.T) {
	subject := user(policytest.Statement{Effect: "allow", Actions: []string{"a:b"}, Banks: []string{"*"}, RetainTags: names("tag", 1000)})
	document, one := len(subject.Grants[0].Document), policy.NewCompiler(policy.Memory).Compile(subject)
	subject.Grants = append(subject.Grants, policy.Grant{PolicyID: "p", Group: "g", Document: subject.Grants[0].Document})
	weight, held, more := one.Weight(), one.Share().Bytes(), policy.NewCompiler(policy.Memory).Compile(subject).Share().Bytes()
	expect.Holds(t, document/2 <= weight && weight <= 2*document && int64(document) <= held && more < held+1000, "bytes: ", document, weight, held, more)
}

// parties returns subjects with policies of some statements each, which differ only in a priority.
func parties(n, policies, statements int) (all []policy.Subject) {
	var grants []policy.Grant
	for i := range policies {
		var list []policytest.Statement
		for s := range statements {
			list = append(list, on(allow(fmt.Sprintf("a%d:%d", i, s)), "b"))
		}
		grants = append(grants, policy.Grant{PolicyID: fmt.Sprint("p", i), Document: policytest.Document(list...)})
	}
	for i := range n {
		s := policy.Subject{Kind: policy.User, Grants: slices.Clone(grants)}
		s.Grants[0].Priority = int64(i)
		all = append(all, s)
	}
	return all
}

// TestAChangeIsJudgedOnce: parties that a write changes alike cost little each, whatever it changes.
func TestAChangeIsJudgedOnce(t *testing.T) {
	for _, statements := range []int{4, 400} {
		c, by := policy.NewCompiler(policy.Memory).Apart(t.Context()), &policy.Grantor{Subject: user(allow("a0:*"))}
		c.Limit(16_000_000)
		before, after := parties(2000, 1, 1), parties(2000, 1, statements)
		for i := range before {
			if _, exceeds := c.Exceeds(by, &before[i], &after[i], nil); exceeds {
				t.Fatal(statements, i, c.Err())
			}
		}
	}
}

// TestLintEndsWithItsBudget: it gathers only so many parties.
func TestLintEndsWithItsBudget(t *testing.T) {
	c, census, gathered := policy.NewCompiler(policy.Memory).Apart(nil), &policy.Census{}, 0
	for i, s := range parties(1000, 4, 10) {
		census.Add(func() policy.Subject { gathered++; return s }, policy.Member{Kind: policy.User, ID: fmt.Sprint(i)})
	}
	c.Limit(10_000_000)
	gathered = 0
	if c.Lint(census); !errors.Is(c.Err(), policy.ErrTooComplex) || gathered > 500 {
		t.Error(c.Err(), gathered)
	}
}

// TestSteps: all work counts, and a judgement of rights with a smaller budget has found too much. A change of what calls
// do, or of what it costs, changes these numbers.
func TestSteps(t *testing.T) {
	is, steps, all := is.New(t), map[string]int{}, user(allow("bank:*"), on(allow("x:y"), "a", "b::*"))
	for seed := range uint64(3) {
		w, other := policytest.NewWorld(seed), policytest.NewWorld(seed+8)
		x := drawnWrite(policytest.NewWorld(seed + 7))
		before, _ := drawnCensus(w)
		after, _ := drawnCensus(other)
		for name, do := range map[string]func(c *policy.Compiler){
			"gather":  func(c *policy.Compiler) { c.Gathers(10) },
			"lint":    func(c *policy.Compiler) { c.Lint(before) },
			"diff":    func(c *policy.Compiler) { c.Diff(before, after) },
			"exceeds": func(c *policy.Compiler) { c.Exceeds(&x.by, x.before, x.after, x.shut) },
			"public":  func(c *policy.Compiler) { c.ExceedsPublic(&x.by, &w.BankPolicies[0], &other.BankPolicies[0]) },
			"banks": func(c *policy.Compiler) {
				c.Diff(&policy.Census{Banks: []policy.Named{*overridden(8, "topic")}}, &policy.Census{})
			},
			"all": func(c *policy.Compiler) {
				_, exceeds := c.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
				is.Equal(exceeds, c.Err() != nil)
			},
			"capabilities": func(c *policy.Compiler) { c.Compile(w.Principals[1].Subject).Capabilities(before.Shut) },
		} {
			steps[name] += sort.Search(1<<30, func(n int) bool {
				c := policy.NewCompiler(policy.Memory).Apart(nil)
				c.Limit(int64(n))
				do(c)
				return !errors.Is(c.Err(), policy.ErrTooComplex)
			})
		}
	}
	is.Equal(steps, map[string]int{
		"gather": 7_680, "banks": 28_200, "all": 23_616, "lint": 2_308_776, "diff": 6_841_756, "exceeds": 50_896, "public": 18_711, "capabilities": 120_428,
	})
}
