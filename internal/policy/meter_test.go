package policy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

func names(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// overridden returns the policy of a bank with n overrides of a scope, each with an action of its own.
func overridden(scope string, n int) *policy.Named {
	text := ""
	for i := range n {
		text += fmt.Sprintf(`,{"scope":%q,"value":"%d","actions":["a%d"]}`, scope, i, i)
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
			c.ExceedsPublic(everything, overridden("topic", n/8), overridden("channel", n/8))
		},
	} {
		c := policy.NewCompiler(policy.Memory).Apart(t.Context())
		do(c, 8000)
		if err := c.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBudget: what is left of a budget ends a comparison, which then has found too much.
func TestBudget(t *testing.T) {
	c := policy.NewCompiler(policy.Memory).Apart(t.Context())
	c.Limit(100)
	all := user(allow("bank:*"))
	if _, exceeds := c.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil); !exceeds {
		t.Error("it does not fail closed")
	}
	if !errors.Is(c.Err(), policy.ErrTooComplex) {
		t.Error(c.Err())
	}
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
	if cost > 100_000 {
		t.Errorf("%.0f allocations", cost)
	}
}
