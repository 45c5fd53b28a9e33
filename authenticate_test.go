package svc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
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
	is.Equal(must(h.Authenticate(t.Context(), string(issued.Key))).Identity(), alice.Identity())

	h.apply(t, `{"users":[{"id":"alice","is_active":false}]}`)
	wantCode(t, errorOf(h.Authenticate(t.Context(), string(issued.Key))), svc.CodeUnauthenticated, "")
	h.apply(t, `{"users":[{"id":"alice","is_active":true}]}`)
	must(h.Authenticate(t.Context(), string(issued.Key)))

	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, issued.ID))
	wantCode(t, errorOf(h.Authenticate(t.Context(), string(issued.Key))), svc.CodeUnauthenticated, "")
}

// TestEveryBadKeyLooksTheSame: one answer, and one store call for all that could have been issued here, none for the others.
func TestEveryBadKeyLooksTheSame(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h, store := watched(t, clock.configure)
	elsewhere := newHost(t) // the same pepper, another store: as if the row had been deleted
	revoked, disabled, expired := issue(t, h, alice), issue(t, h, alice), h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Second)})
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	must(h.Keys.Patch(t.Context(), alice, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
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
	wantCode(t, errorOf(h.Authenticate(t.Context(), string(issue(t, h, alice).Key))), svc.CodeUnavailable, "")
	store.down.Store(false)
	is.NoErr(h.Close()) // which writes uses
	for _, key := range []svc.IssuedKey{revoked, disabled, expired} {
		is.True(h.read(t, key.ID).LastUsedAt.IsZero())
	}
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
		wantCode(t, errorOf(h.Authenticate(t.Context(), bearer)), svc.CodeUnauthenticated, "")
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

// Where the host requires known users, its sessions and the keys end with the user.
func TestRequireKnownUsers(t *testing.T) {
	is := is.New(t)
	var asked int
	known, fails := map[string]bool{"ann": true}, error(nil)
	clock := newClock()
	h := newHost(t, clock.configure, func(c *svc.Config) {
		c.Users.Known = func(_ context.Context, id string) (bool, error) {
			asked++
			return known[id], fails
		}
		c.Users.RequireKnown = true
		c.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			return user(bearer), nil
		})
	})
	h.apply(t, `{"users": [{"id": "ann"}, {"id": "eve"}], "service_accounts": [{"id": "bot", "owner_user_id": "ann"}]}`)
	keys := map[string]svc.Secret{}
	for name, holder := range map[string]svc.Identity{"ann": user("ann").Identity(), "bot": account("bot").Identity(), "eve": user("eve").Identity()} {
		key := must(h.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
		keys[name] = key.Key
	}
	ways := map[string]func() error{
		"key":     func() error { _, err := h.Authenticate(t.Context(), string(keys["ann"])); return err },
		"account": func() error { _, err := h.Authenticate(t.Context(), string(keys["bot"])); return err },
		"bearer":  func() error { _, err := h.Authenticate(t.Context(), "ann"); return err },
		"session": func() error { return h.Accept(t.Context(), user("ann")) },
		"introspect": func() error {
			in, err := h.Keys.Introspect(t.Context(), svc.Host, string(keys["ann"]))
			if err == nil && !in.Active {
				err = svc.ErrUnauthenticated
			}
			return err
		},
	}
	for name, way := range ways {
		known["ann"], fails = true, nil
		clock.in(svc.KnownUserPeriod)
		asked = 0
		for range 3 {
			is.NoErr(way())
		}
		is.Equal(asked, 1) // then it is remembered
		known["ann"] = false
		clock.in(svc.KnownUserPeriod - time.Microsecond)
		is.NoErr(way())
		clock.in(time.Microsecond)
		if err := way(); !errors.Is(err, svc.ErrUnauthenticated) && svc.ErrorCode(err) != svc.CodeUnauthenticated {
			t.Errorf("%s: got %v", name, err)
		}
		known["ann"] = true
		is.NoErr(way()) // a no is not remembered
		clock.in(svc.KnownUserPeriod)
		fails = errors.New("no directory")
		wantCode(t, way(), svc.CodeUnavailable, "")
	}
	fails = nil
	wantCode(t, errorOf(h.Authenticate(t.Context(), string(keys["eve"]))), svc.CodeUnauthenticated, "")
	_, err := svc.New(svc.Config{Store: h.store, Users: svc.UserConfig{RequireKnown: true}})
	is.True(err != nil && strings.Contains(err.Error(), "Config.Users.Known"))
}

// remembered authenticates until no read is needed for it.
func (h *host) remembered(t *testing.T, store *watchedStore, key svc.IssuedKey) {
	t.Helper()
	eventually(t, func() bool {
		before := store.reads.Load()
		must(h.Authenticate(t.Context(), string(key.Key)))
		return store.reads.Load() == before
	})
}

// Once a revocation has returned nobody is let in with the key who comes after it, however many are on their way.
func TestRevokedKeyIsRefusedAtOnce(t *testing.T) {
	h, _ := watched(t)
	for range longtest.Times(15, 50) {
		key := issue(t, h, alice)
		var revoked, stop atomic.Bool
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for !stop.Load() {
					after := revoked.Load()
					if _, err := h.Authenticate(t.Context(), string(key.Key)); err == nil {
						if accepted.Add(1); after {
							t.Error("accepted after it was revoked")
						}
					}
				}
			})
		}
		for accepted.Load() < 20 && !t.Failed() {
			time.Sleep(10 * time.Microsecond)
		}
		if err := h.Keys.Revoke(t.Context(), alice, svc.Me, key.ID); err != nil {
			t.Error(err)
		}
		revoked.Store(true)
		time.Sleep(200 * time.Microsecond)
		stop.Store(true)
		wg.Wait()
	}
}

func TestRevokedElsewhere(t *testing.T) {
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	key := issue(t, h, alice)
	h.remembered(t, store, key)
	is.New(t).NoErr(other.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
	eventually(t, func() bool {
		_, err := h.Authenticate(t.Context(), string(key.Key))
		return svc.ErrorCode(err) == svc.CodeUnauthenticated
	})
}

func TestWhatStopsKeys(t *testing.T) {
	h, store := watched(t)
	key := must(h.Keys.Issue(t.Context(), svc.Host, account("ci").Identity(), svc.NewAPIKey{}))
	for _, c := range []struct{ stop, start string }{
		{`{"users": [{"id": "alice", "is_active": false}]}`, `{"users": [{"id": "alice", "is_active": true}]}`},
		{`{"service_accounts": [{"id": "ci", "owner_user_id": "alice", "is_active": false}]}`,
			`{"service_accounts": [{"id": "ci", "owner_user_id": "alice", "scoping_policy_id": "narrow", "is_active": true}]}`},
		{`{"service_accounts": [{"id": "ci", "owner_user_id": "idle"}]}`, `{"service_accounts": [{"id": "ci", "owner_user_id": "alice"}]}`},
	} {
		h.remembered(t, store, key)
		h.apply(t, c.stop)
		wantCode(t, errorOf(h.Authenticate(t.Context(), string(key.Key))), svc.CodeUnauthenticated, "")
		h.apply(t, c.start)
	}
	h.remembered(t, store, key)
}

// Cut off from the store, a key that is remembered is good for five seconds, and then neither good nor wrong.
func TestAuthenticateWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store := watched(t)
		known, unseen := issue(t, h, alice), issue(t, h, alice)
		h.remembered(t, store, known)
		store.down.Store(true)
		_, err := h.Authenticate(t.Context(), string(known.Key))
		is.New(t).NoErr(err)
		wantCode(t, errorOf(h.Authenticate(t.Context(), string(unseen.Key))), svc.CodeUnavailable, "")
		pass(5 * time.Second)
		wantCode(t, errorOf(h.Authenticate(t.Context(), string(known.Key))), svc.CodeUnavailable, "")
	})
}

// Wrong keys and unknown ones are remembered as good ones are, so that nothing tells them apart but the first look.
func TestBadKeysAreRemembered(t *testing.T) {
	h, store := watched(t)
	good, revoked, disabled, unknown := issue(t, h, alice), issue(t, h, alice), issue(t, h, alice), issue(t, newHost(t), alice)
	h.remembered(t, store, good)
	is.New(t).NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	yes := true
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: &yes})
	is.New(t).NoErr(err)
	wrong := resum(string(good.Key[:21]) + string(revoked.Key[21:53]))
	for name, key := range map[string]string{
		"revoked": string(revoked.Key), "disabled": string(disabled.Key), "unknown": string(unknown.Key), "wrong": wrong,
	} {
		_, _ = h.Authenticate(t.Context(), key)
		before := int64(-1)
		eventually(t, func() bool {
			before = store.reads.Load()
			_, _ = h.Authenticate(t.Context(), key)
			return store.reads.Load() == before
		})
		for range 1000 {
			wantCode(t, errorOf(h.Authenticate(t.Context(), key)), svc.CodeUnauthenticated, "")
		}
		if n := store.reads.Load() - before; n > 10 { // some, until the follower has seen the revocation
			t.Errorf("%s: %d reads", name, n)
		}
	}
}

// A flood of keys that are well-formed and invented reaches neither the store nor the memory.
func TestForgedFlood(t *testing.T) {
	h, store := watched(t)
	good := issue(t, h, alice)
	h.remembered(t, store, good)
	flood := longtest.Times(200_000, 1_000_000)
	if testing.Short() || longtest.Raced {
		flood /= 10
	}
	before, held := store.reads.Load(), heap()
	for i := range flood {
		forged := resum(fmt.Sprintf("svcu_%016d%s", i, good.Key[21:53]))
		if _, err := h.Authenticate(t.Context(), forged); err == nil {
			t.Fatal(forged)
		}
	}
	// One in 2^32 ids is well tagged by chance.
	if n := store.reads.Load() - before; n > 1 {
		t.Errorf("%d reads", n)
	}
	if grown := heap() - held; grown > 1<<20 {
		t.Errorf("%d bytes more are held", grown)
	}
	h.remembered(t, store, good)
}

func TestAuthenticateAllocatesNothing(t *testing.T) {
	h, store := watched(t, func(c *svc.Config) {
		minute := time.Now() // the clock of other tests ticks too fast for two uses in one minute
		c.Now = func() time.Time { return minute }
	})
	key := issue(t, h, alice)
	h.remembered(t, store, key)
	if n := testing.AllocsPerRun(1000, func() { _, _ = h.Authenticate(t.Context(), string(key.Key)) }); n >= 1 && !longtest.Raced {
		t.Errorf("%v allocations", n)
	}
}

// As many keys are remembered as the host says, or some more.
func TestCached(t *testing.T) {
	for cached, bounds := range map[int]struct{ least, most int }{0: {1000, 1000}, 64: {1, 448}} {
		h, store := watched(t, func(c *svc.Config) { c.Memory.Keys = cached })
		keys := make([]svc.IssuedKey, 1000)
		for i := range keys {
			keys[i] = issue(t, h, alice)
		}
		remembered := func() (n int) {
			rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, key := range keys {
				before := store.reads.Load()
				if !h.good(key) {
					t.Fatal("a good key is refused")
				}
				if store.reads.Load() == before {
					n++
				}
			}
			return n
		}
		eventually(t, func() bool { return remembered() >= bounds.least })
		if n := remembered(); n > bounds.most {
			t.Errorf("of %d keys %d are remembered", len(keys), n)
		}
	}
}
