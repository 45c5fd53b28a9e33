package svc_test

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// In a transaction of the host a caller gives no more than it has, as in one of its own.
func TestNobodyGainsInAHostTransaction(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.apply(t, `{"users": [{"id": "lite"}, {"id": "peer"}],
		"policies": [
			{"id": "audit", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:audit:read"], "banks": ["*"]}]}},
			{"id": "attach", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:attachments:write"], "banks": ["*"]}]}}],
		"attachments": [{"policy_id": "attach", "principal_type": "user", "principal_id": "lite"}]}`)
	attach := func(policy string) error {
		return h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
			to := svc.GrantedTo{Type: svc.GrantedToUser, ID: "peer"}
			return h.WithTx(tx).Policies.Attach(ctx, user("lite"), svc.Attachment{PolicyID: policy, Principal: to})
		})
	}
	is.Equal(svc.ErrorCode(attach("audit")), svc.CodeForbidden)
	d, err := h.Decide(t.Context(), user("peer"), "iam:audit:read", "*", svc.Context{})
	is.NoErr(err)
	is.True(!d.Allowed())
	is.NoErr(attach("attach"))
}
