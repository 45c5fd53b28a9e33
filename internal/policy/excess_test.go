package policy_test

import (
	gocontext "context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/policy/policytest"
)

// on returns a statement for other banks.
func on(st policytest.Statement, banks ...string) policytest.Statement {
	st.Banks = banks
	return st
}

// TestExceedsFailsClosed: a call that has ended finds an excess, and no administrator.
func TestExceedsFailsClosed(t *testing.T) {
	is := is.New(t)
	call, end := gocontext.WithCancel(t.Context())
	apart, all := compiler.Apart(call), user(allow("iam:*", "bank:*"))
	_, exceeds := apart.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
	is.True(!exceeds)
	is.True(apart.Administers(all))
	end()
	apart = compiler.Apart(call)
	_, exceeds = apart.Exceeds(&policy.Grantor{Subject: all}, new(user()), &all, nil)
	is.True(exceeds)
	is.True(!apart.Administers(all))
}
