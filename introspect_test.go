package svc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// gateway may introspect keys, and nothing else.
var gateway = user("gateway", svc.ActionKeysIntrospect)

func TestIntrospect(t *testing.T) {
	is := is.New(t)
	h, store, clock := counted(t)
	h.apply(t, `{"users":[{"id":"alice"}],"service_accounts":[{"id":"robot","owner_user_id":"alice"}],"policies":[{"id":"less","document":{"version":"2026-03-24","statements":[]}}]}`)
	expires := clock.now().Add(time.Hour)
	user, robots := issue(t, h, alice), issue(t, h, account("robot"))
	narrowed, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{ScopingPolicyID: "less", ExpiresAt: expires})
	is.NoErr(err)
	for key, want := range map[svc.Secret]svc.Introspection{
		user.Key:     {Active: true, Holder: alice.Identity()},
		robots.Key:   {Active: true, Holder: robot.Identity()},
		narrowed.Key: {Active: true, Holder: alice.Identity(), ScopingPolicyID: "less", ExpiresAt: expires.UTC().Truncate(time.Microsecond)},
	} {
		have, err := h.Keys.Introspect(t.Context(), gateway, string(key))
		is.NoErr(err)
		is.Equal(have, want)
	}
	h.FlushUses(t.Context())
	is.Equal(len(store.uses), 3) // each counts as used
	is.Equal(h.read(t, user.ID).LastUsedAt, clock.now().Truncate(time.Minute))

	is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), user.ID))
	clock.in(time.Hour)
	for _, ended := range []svc.IssuedKey{user, narrowed} {
		have, err := h.Keys.Introspect(t.Context(), gateway, string(ended.Key))
		is.NoErr(err)
		is.Equal(have, svc.Introspection{})
	}
}

func TestIntrospectNeedsItsAction(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := string(issue(t, h, alice).Key)
	for _, by := range []svc.Principal{svc.Host, admin, gateway, user("carol", "iam:keys:*")} {
		in, err := h.Keys.Introspect(t.Context(), by, key)
		is.NoErr(err)
		is.True(in.Active)
	}
	for _, by := range []svc.Principal{alice, robot, svc.Unmapped, user("carol", svc.ActionUsersRead, svc.ActionUsersWrite)} {
		for _, token := range []string{key, "", "x"} {
			in, err := h.Keys.Introspect(t.Context(), by, token)
			wantCode(t, err, svc.CodeForbidden, "")
			is.Equal(in, svc.Introspection{})
		}
	}
}

// Every token that is not accepted gets the same answer, after as many store calls as Authenticate makes. The host's Authenticator is
// not asked.
func TestIntrospectEveryBadToken(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h, store := watched(t, clock.configure, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			t.Error("the host is asked")
			return admin, nil
		})
	})
	elsewhere := newHost(t) // the same pepper, another store
	revoked, expired := issue(t, h, alice), h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Second)})
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	clock.in(time.Minute)
	good, other := string(issue(t, h, alice).Key), string(issue(t, h, alice).Key)
	_, err := h.Keys.Introspect(t.Context(), gateway, "") // the gateway is cached
	is.NoErr(err)
	for name, c := range map[string]struct {
		token string
		calls int64
	}{
		"unknown":         {string(issue(t, elsewhere, alice).Key), 1},
		"revoked":         {string(revoked.Key), 1},
		"expired":         {string(expired.Key), 1},
		"an idle user's":  {string(issue(t, h, user("idle")).Key), 1},
		"a wrong secret":  {resum(good[:21] + other[21:53]), 1},
		"a typo":          {good[:30] + "!" + good[31:], 0},
		"a foreign token": {"eyJhbGciOi", 0},
		"nothing":         {"", 0},
		"100 kB":          {strings.Repeat("x", 100_000), 0},
		"100 kB of a key": {good + strings.Repeat("x", 100_000), 0},
	} {
		store.reads.Store(0)
		in, err := h.Keys.Introspect(t.Context(), gateway, c.token)
		if err != nil || in != (svc.Introspection{}) || store.reads.Load() != c.calls {
			t.Errorf("%s: %+v, %v, %d store calls, want %d", name, in, err, store.reads.Load(), c.calls)
		}
	}
	store.down.Store(true)
	_, err = h.Keys.Introspect(t.Context(), gateway, string(issue(t, h, alice).Key))
	wantCode(t, err, svc.CodeUnavailable, "")
}

// A revocation counts for introspection as soon as it has returned, also when the key was cached.
func TestIntrospectFollowsRevocation(t *testing.T) {
	is := is.New(t)
	h, _ := watched(t)
	for range 100 {
		key := issue(t, h, alice)
		for range 2 { // the second time from the cache
			in, err := h.Keys.Introspect(t.Context(), gateway, string(key.Key))
			is.NoErr(err)
			is.True(in.Active)
		}
		is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), key.ID))
		in, err := h.Keys.Introspect(t.Context(), gateway, string(key.Key))
		is.NoErr(err)
		is.True(!in.Active)
	}
}
