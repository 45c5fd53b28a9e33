package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// makers are the calls that make or change a key of alice, by a principal that is hers.
func makers(h *host, by svc.Principal, id string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"issue mine": func(ctx context.Context) error { _, err := h.Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{}); return err },
		"issue": func(ctx context.Context) error {
			_, err := h.Keys.Issue(ctx, by, alice.Identity(), svc.NewAPIKey{})
			return err
		},
		"import": func(ctx context.Context) error {
			_, err := h.Keys.Import(ctx, by, alice.Identity(), svc.ImportedKey{Prefix: "sk-", Hash: make([]byte, 32)})
			return err
		},
		"patch mine": func(ctx context.Context) error {
			_, err := h.Keys.Patch(ctx, by, svc.Me, id, svc.APIKeyPatch{Disabled: new(false), Description: &svc.TextPatch{Value: new("x")}})
			return err
		},
		"patch": func(ctx context.Context) error {
			_, err := h.Keys.Patch(ctx, by, alice.Identity(), id, svc.APIKeyPatch{Disabled: new(true)})
			return err
		},
		"rotate mine": func(ctx context.Context) error { _, err := h.Keys.Rotate(ctx, by, svc.Me, id, time.Hour); return err },
		"rotate": func(ctx context.Context) error {
			_, err := h.Keys.Rotate(ctx, by, alice.Identity(), id, 0)
			return err
		},
	}
}

// A caller whose key has ended makes and changes no key, though it was good when the caller was
// authenticated.
func TestEndedKeysMakeNothing(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *host, svc.IssuedKey){
		"revoked": func(t *testing.T, h *host, key svc.IssuedKey) {
			is.New(t).NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), key.ID))
		},
		"all revoked": func(t *testing.T, h *host, _ svc.IssuedKey) {
			_, err := h.Keys.RevokeAll(t.Context(), svc.Host, alice.Identity())
			is.New(t).NoErr(err)
		},
		"disabled": func(t *testing.T, h *host, key svc.IssuedKey) {
			_, err := h.Keys.Patch(t.Context(), svc.Host, alice.Identity(), key.ID, svc.APIKeyPatch{Disabled: new(true)})
			is.New(t).NoErr(err)
		},
		"expired": func(_ *testing.T, h *host, _ svc.IssuedKey) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ticks += 3600
		},
		"rotated": func(t *testing.T, h *host, key svc.IssuedKey) {
			_, err := h.Keys.Rotate(t.Context(), svc.Host, alice.Identity(), key.ID, 0)
			is.New(t).NoErr(err)
		},
		"inactive": func(t *testing.T, h *host, _ svc.IssuedKey) {
			h.apply(t, `{"users": [{"id": "alice", "is_active": false}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			h := newHost(t, func(c *svc.Config) { c.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}} })
			h.apply(t, `{"users": [{"id": "alice"}], "policies": [{"id": "all", "document": {"version": "2026-03-24", "statements": [
				{"effect": "allow", "actions": ["iam:*"], "banks": ["*"]}]}}],
				"attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "alice"}]}`)
			key, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{ExpiresAt: h.now().Add(time.Hour)})
			is.NoErr(err)
			other, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{})
			is.NoErr(err)
			by, err := h.Authenticate(t.Context(), string(key.Key))
			is.NoErr(err)
			once := svc.NewAPIKey{IdempotencyKey: "once"}
			_, err = h.Keys.Issue(t.Context(), by, svc.Me, once)
			is.NoErr(err)
			end(t, h, key)
			before := keysOf(t, h)
			for _, make := range makers(h, by, other.ID) {
				err := make(t.Context())
				if svc.ErrorCode(err) == svc.CodeForbidden && name == "inactive" {
					continue // it has no rights any more
				}
				wantCode(t, err, svc.CodeUnauthenticated, "")
			}
			_, err = h.Keys.Issue(t.Context(), by, svc.Me, once)
			wantCode(t, err, svc.CodeUnauthenticated, "")
			is.Equal(keysOf(t, h), before)
		})
	}
}

// The same in a transaction of the host, and where events are kept.
func TestEndedKeysMakeNothingInATransaction(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) { c.Events.Keep = true })
	key, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{})
	is.NoErr(err)
	by, err := h.Authenticate(t.Context(), string(key.Key))
	is.NoErr(err)
	is.NoErr(h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		_, err := h.WithStore(tx).Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{})
		return err
	}))
	is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), key.ID))
	before := keysOf(t, h)
	err = h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		_, err := h.WithStore(tx).Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{})
		return err
	})
	wantCode(t, err, svc.CodeUnauthenticated, "")
	is.Equal(keysOf(t, h), before)
}

func keysOf(t *testing.T, h *host) []svc.APIKey {
	t.Helper()
	return collect(t, h.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))
}

// A key that is good makes keys; the id that the principal remembers is in no JSON.
func TestGoodKeysMakeKeys(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{})
	is.NoErr(err)
	by, err := h.Authenticate(t.Context(), string(key.Key))
	is.NoErr(err)
	next, err := h.Keys.Rotate(t.Context(), by, svc.Me, key.ID, time.Hour) // its own
	is.NoErr(err)
	_, err = h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{}) // it is accepted for an hour
	is.NoErr(err)
	is.Equal(len(keysOf(t, h)), 3)
	text, err := json.Marshal(by)
	is.NoErr(err)
	is.Equal(string(text), `{"Kind":"user","ID":"alice","Actions":null,"ScopingPolicyID":""}`)
	is.True(len(fmt.Sprintf("%+v", by)) < 100 && next.ID != key.ID)
}
