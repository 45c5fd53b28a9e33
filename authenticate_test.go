package svc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/token"
)

func resum(key string) string {
	return token.Token{Prefix: key[:5], ID: key[5:21], Secret: key[21:]}.String()
}

// TestEveryBadKeyLooksTheSame: one answer, and one store call for all that could have been issued here, none for the others.
func TestEveryBadKeyLooksTheSame(t *testing.T) {
	everyBadKey(t, func(*svc.Config) {}, func(h *host, key string) error { return errorOf(h.Authenticate(t.Context(), key)) })
}

// Introspect answers as Authenticate does, and does not ask the host's Authenticator.
func TestIntrospectEveryBadKey(t *testing.T) {
	everyBadKey(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			t.Error("the host is asked")
			return admin, nil
		})
	}, func(h *host, key string) error {
		in, err := h.Keys.Introspect(t.Context(), gateway, key)
		if err == nil && in == (svc.Introspection{}) {
			err = &svc.Error{Code: svc.CodeUnauthenticated, Message: "a valid bearer token is required"}
		}
		return err
	})
}

func everyBadKey(t *testing.T, edit func(*svc.Config), look func(h *host, key string) error) {
	is, clock := is.New(t), newClock()
	h, store := watched(t, clock.configure, edit)
	elsewhere := newHost(t) // the same pepper, another store: as if the row had been deleted
	revoked, disabled, expired := issue(t, h, alice), issue(t, h, alice), h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Second)})
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	must(h.Keys.Patch(t.Context(), alice, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
	clock.in(time.Minute)
	good := string(issue(t, h, alice).Key)
	other, third := string(issue(t, h, alice).Key), string(issue(t, h, alice).Key)
	strange := newHost(t, func(c *svc.Config) { c.Keys.Peppers[0].Secret = []byte("another pepper, for once") })
	wantCode(t, look(h, ""), svc.CodeUnauthenticated, "") // the caller is cached

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
		"100 kB":          {strings.Repeat("x", 100_000), 0},
		"100 kB of a key": {good + strings.Repeat("x", 100_000), 0},
	} {
		store.reads.Store(0)
		err := look(h, c.key)
		wantCode(t, err, svc.CodeUnauthenticated, "")
		e, _ := errors.AsType[*svc.Error](err)
		expect.Holds(t, e != nil && e.Message == "a valid bearer token is required", name, ": ", err)
		expect.Equal(t, name, store.reads.Load(), c.calls)
	}
	store.down.Store(true)
	wantCode(t, look(h, string(issue(t, h, alice).Key)), svc.CodeUnavailable, "")
	store.down.Store(false)
	is.NoErr(h.Close()) // which writes uses
	for _, key := range []svc.IssuedKey{revoked, disabled, expired} {
		is.True(h.read(t, key.ID).LastUsedAt.IsZero())
	}
}

func (h *host) remembered(t *testing.T, store *watchedStore, key svc.IssuedKey) {
	t.Helper()
	eventually(t, func() bool {
		before := store.reads.Load()
		must(h.Authenticate(t.Context(), string(key.Key)))
		return store.reads.Load() == before
	})
}

// What changes while it is read is not cached as it was: a key, its holder, a bank, a sender.
func TestWhatChangesWhileItIsRead(t *testing.T) {
	recalls := func(h *host, by svc.Principal) bool {
		return must(h.Decide(t.Context(), by, "bank:recall", "notes", svc.Context{})).Allowed()
	}
	for name, c := range map[string]struct {
		good func(*host, svc.IssuedKey) bool
		end  func(*host, svc.IssuedKey)
	}{
		"key": {(*host).good, func(h *host, key svc.IssuedKey) { is.New(t).NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, key.ID)) }},
		"holder": {func(h *host, _ svc.IssuedKey) bool { return recalls(h, alice) }, func(h *host, _ svc.IssuedKey) {
			h.apply(t, `{"users": [{"id": "alice", "is_active": false}]}`)
		}},
		"bank": {func(h *host, _ svc.IssuedKey) bool { return recalls(h, svc.Unmapped) }, func(h *host, _ svc.IssuedKey) {
			h.apply(t, `{"bank_policies": [{"bank_id": "notes", "document": `+bankDoc+`}]}`)
		}},
		"sender": {func(h *host, _ svc.IssuedKey) bool {
			q := svc.Question{Sender: "telegram:1", Bank: "notes"}
			return must(h.Policies.Decide(t.Context(), svc.Host, q))[0].ResolvedUserID != nil
		}, func(h *host, _ svc.IssuedKey) { h.apply(t, `{"users": [{"id": "alice", "channels": []}]}`) }},
	} {
		for range 5 { // for what is kept may be dropped a second time
			var change func()
			h := hostOf(t, world, func(c *svc.Config) {
				c.Store = hook(c.Store, hooks{access: func(_ *svc.AccessSnapshot, tx bool) error {
					if do := change; !tx && do != nil {
						change = nil
						do()
					}
					return nil
				}})
			})
			key := issue(t, h, alice)
			change = func() { c.end(h, key) }
			if c.good(h, key); change != nil || c.good(h, key) {
				t.Errorf("%s: what was before is cached, or was not read: %v", name, change != nil)
			}
		}
	}
}

// Cut off from the store, a key that is remembered is good for five seconds, and then neither good nor wrong.
func TestAuthenticateWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store := watched(t)
		known, unseen := issue(t, h, alice), issue(t, h, alice)
		h.remembered(t, store, known)
		store.down.Store(true)
		must(h.Authenticate(t.Context(), string(known.Key)))
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
	must(h.Keys.Patch(t.Context(), alice, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: &yes}))
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
	before, held := store.reads.Load(), heaptest.Live()
	for i := range flood {
		forged := resum(fmt.Sprintf("svcu_%016d%s", i, good.Key[21:53]))
		if _, err := h.Authenticate(t.Context(), forged); err == nil {
			t.Fatal(forged)
		}
	}
	// One in 2^32 ids is well tagged by chance.
	expect.Holds(t, store.reads.Load() <= before+1, "reads: ", store.reads.Load()-before)
	if grown := heaptest.Live() - held; grown > 1<<20 {
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

type useCounter struct {
	*intercept.Store
	uses    atomic.Int64 // rows that uses of keys have written
	mu      sync.Mutex
	changed []any // ids of keys that were changed
	err     error
	during  func() // called while uses are written
}

func (s *useCounter) count() int { return int(s.uses.Load()) }

func (s *useCounter) around(_ context.Context, call intercept.Call) error {
	switch call.Method {
	case "ChangeAPIKey":
		s.mu.Lock()
		s.changed = append(s.changed, call.Args[1])
		s.mu.Unlock()
	case "UseAPIKeys":
		if s.during != nil {
			s.during()
		}
		if s.err != nil {
			return s.err
		}
		s.uses.Add(int64(len(call.Args[0].([]svc.LastUse))))
	}
	return call.Do()
}

// flushed is the longest wait of a use in memory.
const flushed = 10 * time.Second

func counted(t *testing.T, edits ...func(*svc.Config)) (*host, *useCounter, *clock) {
	clock, store := newClock(), &useCounter{}
	return newHost(t, append(edits, clock.configure, func(c *svc.Config) {
		store.Store = outside(c.Store, store.around)
		c.Store = store
	})...), store, clock
}

// When a key was used last is kept to the minute, and written once a minute at most.
func TestLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store, clock := counted(t)
		key := issue(t, h, alice)
		is.True(h.read(t, key.ID).LastUsedAt.IsZero())
		pass(flushed)
		is.Equal(store.count(), 0)
		generation := h.generation(t)
		for want := 1; want <= 3; want++ {
			for range 10 {
				is.True(h.good(key))
				pass(flushed)
			}
			is.Equal(store.count(), want)
			is.Equal(h.read(t, key.ID).LastUsedAt, clock.now().Truncate(time.Minute))
			clock.in(time.Minute)
		}
		is.Equal(h.generation(t), generation) // nobody else has to read anything for it

		store.err, store.during = errDown, func() {
			clock.in(time.Minute)
			is.True(h.good(key))
		}
		is.True(h.good(key))
		pass(flushed) // which fails, and must not forget the use that was noted meanwhile
		store.err, store.during = nil, nil
		last := clock.now().Truncate(time.Minute)
		is.NoErr(h.Close()) // what could not be written is
		is.Equal(h.read(t, key.ID).LastUsedAt, last)
		is.Equal(store.count(), 4)

		other := newHost(t, clock.configure, func(c *svc.Config) { c.Store = store })
		is.True(other.good(key)) // in the same minute: the row says so already
		pass(flushed)
		is.Equal(store.count(), 4)
	})
}

// Of a key that is remembered the first use in a minute is written, too, and no other.
func TestLastUseOfARememberedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		_, store, clock := counted(t)
		watch := watch(store)
		h := newHost(t, clock.configure, func(c *svc.Config) { c.Store = watch })
		key := issue(t, h, alice)
		h.remembered(t, watch, key)
		pass(flushed)
		for range 3 {
			clock.in(time.Minute)
			before := store.count()
			for range 10 {
				is.True(h.good(key))
				pass(flushed)
			}
			is.Equal(store.count(), before+1)
			is.Equal(h.read(t, key.ID).LastUsedAt, clock.now().Truncate(time.Minute))
		}
	})
}

func (h *host) generation(t *testing.T) int64 {
	return must(h.store.Access(t.Context(), svc.AccessQuery{})).Generation
}

// written returns what every write changes: the generation, or the number of keys.
func (h *host) written(t *testing.T) int64 {
	keys := must(h.store.APIKeys(t.Context(), svc.APIKeyPage{KeyQuery: svc.KeyQuery{Limit: 1000}}))
	return h.generation(t)*1000 + int64(len(keys))
}

func TestUsesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, _, clock := counted(t)
		key := issue(t, h, alice)
		is.True(h.good(key))
		is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
		pass(flushed)
		read := h.read(t, key.ID)
		is.Equal(read.LastUsedAt, clock.now().Truncate(time.Minute))
		is.True(!read.RevokedAt.IsZero() && !h.good(key))
	})
}

// In a transaction of the host nothing is kept of a use.
func TestUseInTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store, _ := counted(t)
		key := issue(t, h, alice)
		inTx := h.WithTx(store)
		must(inTx.Authenticate(t.Context(), string(key.Key)))
		pass(flushed)
		is.New(t).Equal(store.count(), 0)
	})
}

var one, two = svc.Pepper{Version: "1", Secret: []byte("the first pepper of two")}, svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}

func under(t *testing.T, store svc.Store, clock *clock) func(peppers ...svc.Pepper) *host {
	return func(peppers ...svc.Pepper) *host {
		return newHost(t, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
	}
}

// A key that is used is hashed anew under the first pepper, so that the old one can be dropped.
func TestUsedKeysMoveToTheFirstPepper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store, clock := counted(t, func(c *svc.Config) { c.Keys.Peppers = []svc.Pepper{{}, one} })
		with := under(t, store, clock)
		used, unused := issue(t, h, alice), issue(t, h, alice)
		is.Equal(used.Pepper, "")
		both := with(two, one, svc.Pepper{})
		watch := watch(store)
		both = newHost(t, func(c *svc.Config) { *c = both.config; c.Store = watch })
		for range 3 {
			both.remembered(t, watch, used)
			pass(flushed)
			clock.in(time.Minute)
		}
		is.Equal(h.read(t, used.ID).Pepper, "2")
		is.Equal(h.read(t, unused.ID).Pepper, "")
		is.Equal(store.changed, []any{used.ID})         // once
		gone := svc.Pepper{Version: "1", Retired: true} // its secret is gone
		for _, c := range []struct {
			h          *host
			used, rest bool
		}{
			{with(two, one, svc.Pepper{}), true, true},
			{with(two), false, false}, // neither's id is known to have been issued here
			{with(two, svc.Pepper{Retired: true}), true, false},
			{with(one, svc.Pepper{Version: "2", Secret: two.Secret, Retired: true}, svc.Pepper{}), false, true},
		} {
			is.Equal(c.h.good(used), c.used)
			is.Equal(c.h.good(unused), c.rest)
		}

		ones := issue(t, with(one), alice)
		is.True(!with(two, gone).good(ones)) // it was not used in time
		both = with(two, one)
		is.True(both.good(ones))
		is.NoErr(both.Close())
		is.True(with(two, gone).good(ones))
		is.True(!with(one).good(ones))
	})
}

// A key moves with its first use, also in a minute in which it was used already, by this process or another; and once,
// however often it is used until then.
func TestKeysMoveInTheMinuteOfAUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store, clock := counted(t, func(c *svc.Config) { c.Keys.Peppers = []svc.Pepper{one} })
		with := under(t, store, clock)
		key := issue(t, h, alice)
		is.True(h.good(key))
		pass(flushed)
		is.True(!h.read(t, key.ID).LastUsedAt.IsZero())

		both := with(two, one)
		for range 10 {
			is.True(both.good(key))
		}
		before := store.count()
		pass(flushed)
		is.Equal(h.read(t, key.ID).Pepper, "2")
		is.Equal(store.changed, []any{key.ID})
		is.Equal(store.count(), before+1)
		is.True(both.good(key))
		pass(flushed)
		is.Equal(store.count(), before+1)
		is.True(with(two, svc.Pepper{Version: "1", Retired: true}).good(key))
	})
}
