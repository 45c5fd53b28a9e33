package svc_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// remembered authenticates until no read is needed for it.
func (h *host) remembered(t *testing.T, store *watchedStore, key svc.IssuedKey) {
	t.Helper()
	eventually(t, func() bool {
		before := store.reads.Load()
		if _, err := h.Authenticate(t.Context(), string(key.Key)); err != nil {
			t.Fatal(err)
		}
		return store.reads.Load() == before
	})
}

// Once a revocation has returned nobody is let in with the key who comes after it, however many are on their way.
func TestRevokedKeyIsRefusedAtOnce(t *testing.T) {
	h, _ := watched(t)
	for range 50 {
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
	is := is.New(t)
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	key := issue(t, h, alice)
	h.remembered(t, store, key)
	is.NoErr(other.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
	eventually(t, func() bool {
		_, err := h.Authenticate(t.Context(), string(key.Key))
		return svc.ErrorCode(err) == svc.CodeUnauthenticated
	})
}

func TestWhatStopsKeys(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	key, err := h.Keys.Issue(t.Context(), svc.Host, account("ci").Identity(), svc.NewAPIKey{})
	is.NoErr(err)
	for _, c := range []struct{ stop, start string }{
		{`{"users": [{"id": "alice", "is_active": false}]}`, `{"users": [{"id": "alice"}]}`},
		{`{"service_accounts": [{"id": "ci", "owner_user_id": "alice", "is_active": false}]}`,
			`{"service_accounts": [{"id": "ci", "owner_user_id": "alice", "scoping_policy_id": "narrow"}]}`},
		{`{"service_accounts": [{"id": "ci", "owner_user_id": "idle"}]}`, `{"service_accounts": [{"id": "ci", "owner_user_id": "alice"}]}`},
	} {
		h.remembered(t, store, key)
		h.apply(t, c.stop)
		_, err := h.Authenticate(t.Context(), string(key.Key))
		wantCode(t, err, svc.CodeUnauthenticated, "")
		h.apply(t, c.start)
	}
	h.remembered(t, store, key)
}

// Cut off from the store, a key that is remembered is good for five seconds, and then neither good nor wrong.
func TestAuthenticateWithoutTheStore(t *testing.T) {
	h, store := watched(t)
	known, unseen := issue(t, h, alice), issue(t, h, alice)
	h.remembered(t, store, known)
	store.down.Store(true)
	_, err := h.Authenticate(t.Context(), string(known.Key))
	is.New(t).NoErr(err)
	_, err = h.Authenticate(t.Context(), string(unseen.Key))
	wantCode(t, err, svc.CodeUnavailable, "")
	h.Service.SeenLongAgo()
	_, err = h.Authenticate(t.Context(), string(known.Key))
	wantCode(t, err, svc.CodeUnavailable, "")
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
		eventually(t, h.CaughtUp)
		_, _ = h.Authenticate(t.Context(), key)
		before := store.reads.Load()
		for range 1000 {
			_, err := h.Authenticate(t.Context(), key)
			wantCode(t, err, svc.CodeUnauthenticated, "")
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
	flood := 1_000_000
	if testing.Short() || raced {
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
	if n := testing.AllocsPerRun(1000, func() { _, _ = h.Authenticate(t.Context(), string(key.Key)) }); n >= 1 && !raced {
		t.Errorf("%v allocations", n)
	}
}
