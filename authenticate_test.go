package svc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/token"
)

// resum gives a key without its checksum the right one.
func resum(key string) string {
	return token.Token{Prefix: key[:5], ID: key[5:21], Secret: key[21:]}.String()
}

func TestAuthenticateKey(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	issued := issue(t, h, alice)
	who, err := h.Authenticate(t.Context(), string(issued.Key))
	is.NoErr(err)
	is.Equal(who.Identity(), alice.Identity())

	h.apply(t, `{"users":[{"id":"alice","is_active":false}]}`)
	_, err = h.Authenticate(t.Context(), string(issued.Key))
	wantCode(t, err, svc.CodeUnauthenticated, "")
	h.apply(t, `{"users":[{"id":"alice"}]}`)
	_, err = h.Authenticate(t.Context(), string(issued.Key))
	is.NoErr(err)

	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, issued.ID))
	_, err = h.Authenticate(t.Context(), string(issued.Key))
	wantCode(t, err, svc.CodeUnauthenticated, "")
}

// TestEveryBadKeyLooksTheSame: one answer, and one store call for all that could have been issued here, none for the others.
func TestEveryBadKeyLooksTheSame(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h, store := watched(t, clock.configure)
	elsewhere := newHost(t) // the same pepper, another store: as if the row had been deleted
	revoked, disabled, expired := issue(t, h, alice), issue(t, h, alice), h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Second)})
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)})
	is.NoErr(err)
	clock.in(time.Minute)
	good := string(issue(t, h, alice).Key)
	other, third := string(issue(t, h, alice).Key), string(issue(t, h, alice).Key)
	strange := newHost(t, func(c *svc.Config) { c.Keys.Peppers[0].Secret = []byte("another pepper, for once") })

	for name, c := range map[string]struct {
		key   string
		calls int64
	}{
		"unknown":         {string(issue(t, elsewhere, alice).Key), 1},
		"revoked":         {string(revoked.Key), 1},
		"disabled":        {string(disabled.Key), 1},
		"expired":         {string(expired.Key), 1},
		"an idle user's":  {string(issue(t, h, user("idle")).Key), 1},
		"an idle robot's": {string(issue(t, h, account("off")).Key), 1},
		"an idle owner's": {string(issue(t, h, account("idle-owned")).Key), 1},
		"a wrong secret":  {resum(good[:21] + other[21:53]), 1},
		"an invented id":  {string(issue(t, strange, alice).Key), 0},
		"a typo":          {good[:30] + "!" + good[31:], 0},
		"too short":       {good[:20], 0},
		"the prefix":      {"svcu_", 0},
		"another's kind":  {resum("svcs_" + third[5:53]), 1},
		"a foreign token": {"eyJhbGciOi", 0},
		"nothing":         {"", 0},
	} {
		store.reads.Store(0)
		_, err := h.Authenticate(t.Context(), c.key)
		wantCode(t, err, svc.CodeUnauthenticated, "")
		if e, _ := errors.AsType[*svc.Error](err); e == nil || e.Message != "a valid bearer token is required" {
			t.Errorf("%s: %v", name, err)
		}
		if n := store.reads.Load(); n != c.calls {
			t.Errorf("%s: %d store calls, want %d", name, n, c.calls)
		}
	}
	store.down.Store(true)
	_, err = h.Authenticate(t.Context(), string(issue(t, h, alice).Key))
	wantCode(t, err, svc.CodeUnavailable, "")
}

func TestAuthenticator(t *testing.T) {
	is := is.New(t)
	answers := map[string]struct {
		who svc.Principal
		err error
	}{
		"alice":    {alice, nil},
		"admin":    {admin, nil},
		"robot":    {robot, nil},
		"none":     {svc.Principal{}, fmt.Errorf("session: %w", svc.ErrUnauthenticated)},
		"down":     {svc.Principal{}, errors.New("the session store is down")},
		"host":     {svc.Host, nil},
		"odd":      {svc.Principal{Kind: svc.KindUser, ID: "a/b"}, nil},
		"all":      {svc.Principal{Kind: svc.KindUser, ID: "a", Actions: []string{"*"}}, nil},
		"wild":     {svc.Principal{Kind: svc.KindUser, ID: "a", Actions: []string{"iam:*", "iam*"}}, nil},
		"empty":    {svc.Principal{Kind: svc.KindUser, ID: "a", Actions: []string{""}}, nil},
		"svcother": {bob, nil},
	}
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			if strings.HasPrefix(bearer, "svcu_") || bearer == "" {
				t.Errorf("the host is shown %q", bearer)
			}
			return answers[bearer].who, answers[bearer].err
		})
	})
	for bearer, code := range map[string]svc.Code{
		"alice": "", "admin": "", "robot": "", "svcother": "", "none": svc.CodeUnauthenticated,
		"down": svc.CodeUnavailable, "host": svc.CodeInternal, "odd": svc.CodeInternal, "all": "", "wild": svc.CodeInternal, "empty": svc.CodeInternal,
		"svcu_typo": svc.CodeUnauthenticated, "": svc.CodeUnauthenticated,
	} {
		who, err := h.Authenticate(t.Context(), bearer)
		is.Equal(svc.ErrorCode(err), code)
		if err == nil {
			is.Equal(who, answers[bearer].who)
		}
	}
	_, err := h.Authenticate(t.Context(), "wild")
	is.True(strings.Contains(err.Error(), `"iam*"`)) // for the log
	h.apply(t, `{"users":[{"id":"alice","is_active":false}],
		"service_accounts":[{"id":"robot","owner_user_id":"alice","is_active":false}]}`)
	for _, bearer := range []string{"alice", "robot"} {
		_, err := h.Authenticate(t.Context(), bearer)
		wantCode(t, err, svc.CodeUnauthenticated, "")
	}
}

// Accept judges a principal as Authenticate judges an Authenticator's, and takes none of a key.
func TestAccept(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	h.apply(t, `{"users":[{"id":"asleep","is_active":false}]}`)
	for who, code := range map[*svc.Principal]svc.Code{
		&alice: "", &admin: "", &robot: "", {Kind: svc.KindUser, ID: "of no row", Actions: []string{"*"}}: "",
		{Kind: svc.KindUser, ID: "asleep"}: svc.CodeUnauthenticated,
		&svc.Host:                          svc.CodeInternal, &svc.Unmapped: svc.CodeInternal, {}: svc.CodeInternal, {Kind: svc.KindUser}: svc.CodeInternal,
		{Kind: svc.KindUser, ID: "a/b"}:                                        svc.CodeInternal,
		{Kind: svc.KindUser, ID: "a", Actions: []string{"iam*"}}:               svc.CodeInternal,
		{Kind: svc.KindUser, ID: "a", ScopingPolicyID: "a/b"}:                  svc.CodeInternal,
		new(must(h.Authenticate(t.Context(), string(issue(t, h, alice).Key)))): svc.CodeInternal,
	} {
		if err := h.Accept(t.Context(), *who); svc.ErrorCode(err) != code {
			t.Errorf("%+v: %v", *who, err)
		}
	}
	h.apply(t, `{"users":[{"id":"alice","is_active":false}]}`)
	wantCode(t, h.Accept(t.Context(), alice), svc.CodeUnauthenticated, "")
	store.down.Store(true)
	wantCode(t, h.Accept(t.Context(), user("unseen")), svc.CodeUnavailable, "")
	is.Equal(svc.ErrorCode(h.Accept(t.Context(), svc.Host)), svc.CodeInternal)
}
