package svc_test

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
)

var (
	alice = svc.Principal{Kind: svc.KindUser, ID: "alice"}
	bob   = svc.Principal{Kind: svc.KindUser, ID: "bob"}
	robot = svc.Principal{Kind: svc.KindServiceAccount, ID: "robot"}
)

func issue(t *testing.T, h *host, who svc.Principal) svc.IssuedKey {
	return must(h.Keys.Issue(t.Context(), svc.Host, who.Identity(), svc.NewAPIKey{}))
}

func taken(store svc.Store, times *int) svc.Store {
	return ahead(store, "CreateAPIKey", func(any) error {
		if *times--; *times >= 0 {
			return svc.ErrExists
		}
		return nil
	})
}

// A taken id is drawn anew. Until a rotation has found one, the old key is as it was.
func TestTakenKeyIDsAreDrawnAnew(t *testing.T) {
	is, times := is.New(t), 3
	h := newHost(t, func(c *svc.Config) { c.Store = taken(c.Store, &times) })
	old := issue(t, h, alice)
	times = 4
	wantCode(t, errorOf(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{})), svc.CodeInternal, "")
	before := h.read(t, old.ID)
	h.actions()
	times = 4
	wantCode(t, errorOf(h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{})), svc.CodeInternal, "")
	is.Equal(h.read(t, old.ID), before)
	is.Equal(h.actions(), nil)
	times = 3
	next := must(h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{}))
	is.Equal(keysOf(t, h), []svc.APIKey{next.APIKey})
}

func limited(most int) func(*svc.Config) {
	return func(c *svc.Config) { c.Keys.MaxPerHolder, c.Keys.Imports = most, []svc.KeyImport{{Prefix: "sk-"}} }
}

func TestKeysPerHolderByDefault(t *testing.T) {
	h := newHost(t)
	for range svc.DefaultMaxKeysPerHolder {
		issue(t, h, alice)
	}
	wantCode(t, errorOf(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})), svc.CodeLimit, "")
	_, err := svc.New(svc.Config{Store: h.store, Keys: svc.KeyConfig{MaxPerHolder: -1}})
	is.New(t).True(err != nil)
}

// Many keys are revoked in chunks, each a transaction that tells of its own keys once it is
// committed. When ctx ends in between what was revoked stays revoked, and a repetition does the
// rest. In a transaction of the host all are part of that.
func TestAllKeysAreRevokedInChunks(t *testing.T) {
	is := is.New(t)
	var sizes []int // of revocations of many
	after := func() {}
	h := newHost(t, limited(700), func(c *svc.Config) {
		c.Store = around(c.Store, func(call intercept.Call) error {
			before := len(sizes)
			err := call.Do()
			if call.Method == "RevokeAPIKeys" {
				sizes = append(sizes, len(*call.Result.(*[]string)))
			} else if call.Method == "Atomically" && len(sizes) > before {
				after()
			}
			return err
		})
	})
	fill := func() {
		sizes = nil
		for len(keysOf(t, h)) < 700 {
			for range 700 - len(keysOf(t, h)) {
				issue(t, h, alice)
			}
		}
		h.actions()
	}
	fill()
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	after = func() {
		is.Equal(len(h.actions()), told) // of the chunk before
		told = 256
		if len(sizes) == 2 {
			cancel()
		}
	}
	n, err := h.Keys.RevokeAll(ctx, alice, svc.Me)
	wantCode(t, err, svc.CodeUnavailable, "")
	is.True(n == 256 || n == 512) // a store may find that ctx has ended by the end of the second
	is.Equal(len(keysOf(t, h)), 700-n)
	after = func() {}
	is.Equal(n+must(h.Keys.RevokeAll(t.Context(), alice, svc.Me)), 700)
	is.Equal(len(keysOf(t, h)), 0)
	for _, size := range sizes {
		is.True(size <= 256)
	}

	fill()
	is.NoErr(h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		n, err := h.WithTx(tx).Keys.RevokeAll(ctx, alice, svc.Me)
		if n != 700 {
			return fmt.Errorf("%d were revoked", n)
		}
		return err
	}))
	is.Equal(len(keysOf(t, h)), 0)
}

// batchStore adds keys together, as judge says.
type batchStore struct {
	svc.FullStore
	judge func(batching.Key[svc.APIKey, svc.Event]) (add bool, err error)
	seen  []batching.Key[svc.APIKey, svc.Event]
}

func (s *batchStore) AddAPIKeys(ctx context.Context, b batching.Keys[svc.APIKey, svc.Event]) (added []bool, err error) {
	keys := b.Take()
	s.seen = append(s.seen, keys...)
	for _, k := range keys {
		add, err := s.judge(k)
		if err == nil && add {
			err = s.CreateAPIKey(ctx, k.Key)
		}
		if err != nil {
			return nil, err
		}
		added = append(added, add)
	}
	return added, nil
}

// A store may add keys together. What it does not add is issued alone, and its failure is not tried again.
func TestKeysIssuedTogether(t *testing.T) { synctest.Test(t, keysIssuedTogether) }

func keysIssuedTogether(t *testing.T) {
	is, clock := is.New(t), newClock()
	store := &batchStore{}
	h := hostOf(t, world, clock.configure, func(c *svc.Config) {
		store.FullStore, c.Store, c.Keys.MaxPerHolder = c.Store.(svc.FullStore), store, 4
	})
	yes := func(batching.Key[svc.APIKey, svc.Event]) (bool, error) { return true, nil }
	store.judge = yes
	carol := svc.Identity{Kind: svc.KindUser, ID: "carol"}
	own := must(h.Keys.Issue(t.Context(), svc.Host, carol, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Hour)}))
	by := h.principal(t, own)
	is.Equal(len(store.seen), 1)
	is.Equal(store.seen[0].Since, int64(0)) // the host relies on nothing
	h.actions()

	second := must(h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{}))
	is.True(h.good(second))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + second.ID + " by carol"})
	last := store.seen[1]
	is.True(last.Since > 0)
	is.Equal(last.Caller, own.ID)
	is.Equal(last.Event.ActorKey, own.ID)
	is.Equal(last.Key, second.APIKey)

	store.judge = func(batching.Key[svc.APIKey, svc.Event]) (bool, error) { return false, nil }
	third := must(h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{}))
	is.True(h.good(third))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + third.ID + " by carol"})
	store.judge = func(batching.Key[svc.APIKey, svc.Event]) (bool, error) { return false, svc.ErrUnavailable }
	is.Equal(svc.ErrorCode(errorOf(h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{}))), svc.CodeUnavailable)
	is.Equal(len(h.actions()), 0)
	is.Equal(len(store.seen), 4)

	// Who waits behind keys that get no answer does not wait for the next ones, too.
	store.judge = func(batching.Key[svc.APIKey, svc.Event]) (bool, error) {
		time.Sleep(4 * time.Second)
		return false, svc.ErrUnavailable
	}
	errs := make(chan error)
	for range 3 {
		go func() {
			_, err := h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{})
			errs <- err
		}()
		synctest.Wait()
	}
	for range 3 {
		is.Equal(svc.ErrorCode(<-errs), svc.CodeUnavailable)
	}
	is.Equal(len(store.seen), 5)
	store.seen = store.seen[:4]

	// These are issued alone: a request that may come again, and one by a caller without a key.
	store.judge = yes
	must(h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"}))
	must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{}))
	is.Equal(len(store.seen), 4)
	clock.in(2 * time.Hour)
	is.Equal(svc.ErrorCode(errorOf(h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{}))), svc.CodeUnauthenticated)
	is.Equal(len(store.seen), 4) // the caller's key has expired
}

// narrowWorld: alice may do everything on her banks and administer keys; each other policy is there to narrow.
//
//go:embed testdata/narrow.json
var narrowWorld string

func (h *host) principal(t *testing.T, key svc.IssuedKey) svc.Principal {
	return must(h.Authenticate(t.Context(), string(key.Key)))
}

// Where nothing has changed since an administrator's key was judged, an issue for another user reads no
// row of both again. The key ends with its time nevertheless, and stands for its holder only.
func TestNothingIsJudgedAgainWhereNothingHasChanged(t *testing.T) {
	is := is.New(t)
	var h *host
	rows, late := []bool{}, 0
	h = newHost(t, func(c *svc.Config) {
		c.Store = hook(c.Store, hooks{access: func(read *svc.AccessSnapshot, tx bool) error {
			if tx {
				rows = append(rows, read.Key != nil || read.User != nil)
				h.mu.Lock()
				defer h.mu.Unlock()
				h.ticks += late
			}
			return nil
		}})
	})
	h.apply(t, staff)
	hour := h.now().Add(time.Hour)
	root := user("root").Identity()
	key := must(h.Keys.Issue(t.Context(), svc.Host, root, svc.NewAPIKey{ExpiresAt: hour}))
	by := h.principal(t, key)
	issue := func(by svc.Principal) (read []bool, err error) {
		rows = nil
		_, err = h.Keys.Issue(t.Context(), by, alice.Identity(), svc.NewAPIKey{})
		return rows, err
	}
	is.Equal(must(issue(by)), []bool{false})
	other := by
	other.ID, other.Actions = "other", []string{"*"}
	wantCode(t, errorOf(issue(other)), svc.CodeUnauthenticated, "")
	by, late = h.principal(t, key), 2*3600
	wantCode(t, errorOf(issue(by)), svc.CodeUnauthenticated, "")
	is.Equal(len(collect(t, h.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))), 1)
}

func TestNarrowingPolicyGone(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	key := must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{ScopingPolicyID: "recall"}))
	lost := hooks{access: func(a *svc.AccessSnapshot, _ bool) error { a.Narrowing = nil; return nil }}
	gone := newHost(t, func(c *svc.Config) { c.Store = hook(h.store, lost) })
	p := gone.principal(t, key)
	d := must(gone.Decide(t.Context(), p, "bank:recall", "notes", svc.Context{}))
	is.True(!d.Allowed())
	is.Equal(d.Reason(), `the scoping policy "recall" that narrows it no longer exists`)
}

var scarce = svc.Rate{PerSecond: 0.5, Burst: 5}

func (h *host) rateOf(t *testing.T, key svc.IssuedKey) svc.Rate {
	t.Helper()
	by, err := h.Authenticate(t.Context(), string(key.Key))
	if err != nil || by.KeyID() != key.ID {
		t.Fatal(by.KeyID(), err)
	}
	return by.Rate()
}

func TestRateOfAPrincipal(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	for _, rate := range []svc.Rate{{}, scarce, {PerSecond: limits.Rate, Burst: limits.Burst}, {PerSecond: limits.LeastRate, Burst: 1}} {
		key := h.issueWith(t, svc.NewAPIKey{Rate: rate})
		is.Equal(key.Rate, rate)
		is.Equal(h.read(t, key.ID).Rate, rate)
		eventually(t, func() bool { // until it is from memory
			reads := store.reads.Load()
			is.Equal(h.rateOf(t, key), rate)
			return store.reads.Load() == reads
		})
	}
	for _, none := range []svc.Rate{{PerSecond: math.NaN(), Burst: 1}, {PerSecond: math.Inf(1), Burst: 1}} {
		wantCode(t, errorOf(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Rate: none})), svc.CodeInvalid, "/rate/per_second")
	}
	is.Equal(alice.KeyID(), "")
	is.Equal(svc.Host.Rate(), svc.Rate{})
}
