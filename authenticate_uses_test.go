package svc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// useCounter counts the rows that uses of keys write.
type useCounter struct {
	svc.Store
	mu      sync.Mutex
	uses    []svc.LastUse
	changed []string // ids of keys that were written beside
	err     error
	during  func() // called while uses are written
}

func (s *useCounter) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.Store.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		write, err := change(key)
		if write {
			s.changed = append(s.changed, id)
		}
		return write, err
	})
}

func (s *useCounter) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.during != nil {
		s.during()
	}
	if s.err != nil {
		return s.err
	}
	s.uses = append(s.uses, uses...)
	return s.Store.UseAPIKeys(ctx, uses)
}

// count returns how many uses were written.
func (s *useCounter) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uses)
}

// flushed is the longest wait of a use in memory.
const flushed = 10 * time.Second

func counted(t *testing.T, edits ...func(*svc.Config)) (*host, *useCounter, *clock) {
	clock, store := newClock(), &useCounter{}
	return newHost(t, append(edits, clock.configure, func(c *svc.Config) {
		store.Store = c.Store
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
		watch := &watchedStore{Store: store}
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
	snapshot := must(h.store.Access(t.Context(), svc.AccessQuery{}))
	return snapshot.Generation
}

// written returns what every write changes: the generation, or the number of keys.
func (h *host) written(t *testing.T) int64 {
	keys := must(h.store.APIKeys(t.Context(), svc.APIKeyPage{KeyQuery: svc.KeyQuery{Limit: 1000}}))
	return h.generation(t)*1000 + int64(len(keys))
}

// A use of a revoked key does not bring it back.
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

// A key that is used is hashed anew under the first pepper, so that the old one can be dropped.
func TestUsedKeysMoveToTheFirstPepper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		one := svc.Pepper{Version: "1", Secret: []byte("the first pepper of two")}
		two := svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
		h, store, clock := counted(t, func(c *svc.Config) { c.Keys.Peppers = []svc.Pepper{{}, one} })
		with := func(peppers ...svc.Pepper) *host {
			return newHost(t, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
		}
		used, unused := issue(t, h, alice), issue(t, h, alice)
		is.Equal(used.Pepper, "")
		both := with(two, one, svc.Pepper{})
		watch := &watchedStore{Store: store}
		both = newHost(t, func(c *svc.Config) { *c = both.config; c.Store = watch })
		for range 3 {
			both.remembered(t, watch, used)
			pass(flushed)
			clock.in(time.Minute)
		}
		is.Equal(h.read(t, used.ID).Pepper, "2")
		is.Equal(h.read(t, unused.ID).Pepper, "")
		is.Equal(store.changed, []string{used.ID})      // once
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
		one := svc.Pepper{Version: "1", Secret: []byte("the first pepper of two")}
		two := svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
		h, store, clock := counted(t, func(c *svc.Config) { c.Keys.Peppers = []svc.Pepper{one} })
		with := func(peppers ...svc.Pepper) *host {
			return newHost(t, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
		}
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
		is.Equal(store.changed, []string{key.ID})
		is.Equal(store.count(), before+1)
		is.True(both.good(key))
		pass(flushed)
		is.Equal(store.count(), before+1)
		is.True(with(two, svc.Pepper{Version: "1", Retired: true}).good(key))
	})
}

// gateway may introspect keys, and nothing else.
var gateway = user("gateway", action.KeysIntrospect)

func TestIntrospect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			is.Equal(must(h.Keys.Introspect(t.Context(), gateway, string(key))), want)
		}
		pass(flushed)
		is.Equal(store.count(), 3) // each counts as used
		is.Equal(h.read(t, user.ID).LastUsedAt, clock.now().Truncate(time.Minute))

		is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), user.ID))
		clock.in(time.Hour)
		for _, ended := range []svc.IssuedKey{user, narrowed} {
			is.Equal(must(h.Keys.Introspect(t.Context(), gateway, string(ended.Key))), svc.Introspection{})
		}
	})
}

func TestIntrospectNeedsItsAction(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := string(issue(t, h, alice).Key)
	for _, by := range []svc.Principal{svc.Host, admin, gateway, user("carol", "iam:keys:*")} {
		in := must(h.Keys.Introspect(t.Context(), by, key))
		is.True(in.Active)
	}
	for _, by := range []svc.Principal{alice, robot, svc.Unmapped, user("carol", action.UsersRead, action.UsersWrite)} {
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
			in := must(h.Keys.Introspect(t.Context(), gateway, string(key.Key)))
			is.True(in.Active)
		}
		is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), key.ID))
		is.True(!must(h.Keys.Introspect(t.Context(), gateway, string(key.Key))).Active)
	}
}
