package svc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// useCounter counts the rows that uses of keys write.
type useCounter struct {
	svc.Store
	mu      sync.Mutex
	uses    []svc.KeyUse
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

func (s *useCounter) UseAPIKeys(ctx context.Context, uses []svc.KeyUse) error {
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

func counted(t *testing.T, edits ...func(*svc.Config)) (*host, *useCounter, *clock) {
	clock, store := newClock(), &useCounter{}
	return newHost(t, append(edits, clock.configure, func(c *svc.Config) {
		store.Store = c.Store
		c.Store = store
	})...), store, clock
}

// When a key was used last is kept to the minute, and written once a minute at most.
func TestLastUse(t *testing.T) {
	is := is.New(t)
	h, store, clock := counted(t)
	key := issue(t, h, alice)
	is.True(h.read(t, key.ID).LastUsedAt.IsZero())
	h.FlushUses(t.Context())
	is.Equal(len(store.uses), 0)
	generation := h.generation(t)
	for want := 1; want <= 3; want++ {
		for range 10 {
			is.True(h.good(key))
			h.FlushUses(t.Context())
		}
		is.Equal(len(store.uses), want)
		is.Equal(h.read(t, key.ID).LastUsedAt, clock.now().Truncate(time.Minute))
		clock.in(time.Minute)
	}
	is.Equal(h.generation(t), generation) // nobody else has to read anything for it

	store.err, store.during = errDown, func() {
		clock.in(time.Minute)
		is.True(h.good(key))
	}
	is.True(h.good(key))
	h.FlushUses(t.Context()) // which fails, and must not forget the use that was noted meanwhile
	store.err, store.during = nil, nil
	last := clock.now().Truncate(time.Minute)
	is.NoErr(h.Close()) // what could not be written is
	is.Equal(h.read(t, key.ID).LastUsedAt, last)
	is.Equal(len(store.uses), 4)

	other := newHost(t, clock.configure, func(c *svc.Config) { c.Store = store })
	is.True(other.good(key)) // in the same minute: the row says so already
	other.FlushUses(t.Context())
	is.Equal(len(store.uses), 4)
}

// Of a key that is remembered the first use in a minute is written, too, and no other.
func TestLastUseOfARememberedKey(t *testing.T) {
	is := is.New(t)
	_, store, clock := counted(t)
	watch := &watchedStore{Store: store}
	h := newHost(t, clock.configure, func(c *svc.Config) { c.Store = watch })
	key := issue(t, h, alice)
	h.remembered(t, watch, key)
	h.FlushUses(t.Context())
	for range 3 {
		clock.in(time.Minute)
		before := len(store.uses)
		for range 10 {
			is.True(h.good(key))
			h.FlushUses(t.Context())
		}
		is.Equal(len(store.uses), before+1)
		is.Equal(h.read(t, key.ID).LastUsedAt, clock.now().Truncate(time.Minute))
	}
}

func (h *host) generation(t *testing.T) int64 {
	snapshot, err := h.store.Access(t.Context(), svc.AccessQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Generation
}

// Uses that wait are bounded, and a use of a revoked key does not bring it back.
func TestUsesThatWait(t *testing.T) {
	is := is.New(t)
	h, _, clock := counted(t)
	key := issue(t, h, alice)
	is.True(h.good(key))
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
	h.FlushUses(t.Context())
	read := h.read(t, key.ID)
	is.Equal(read.LastUsedAt, clock.now().Truncate(time.Minute))
	is.True(!read.RevokedAt.IsZero() && !h.good(key))
	is.Equal(svc.WaitingUses(1<<16+100), 1<<16)
}

// In a transaction of the host nothing is kept of a use.
func TestUseInTransaction(t *testing.T) {
	is := is.New(t)
	h, store, _ := counted(t)
	key := issue(t, h, alice)
	inTx := h.WithStore(store)
	_, err := inTx.Authenticate(t.Context(), string(key.Key))
	is.NoErr(err)
	h.FlushUses(t.Context())
	is.Equal(len(store.uses), 0)
}

// A key that is used is hashed anew under the first pepper, so that the old one can be dropped.
func TestUsedKeysMoveToTheFirstPepper(t *testing.T) {
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
		both.FlushUses(t.Context())
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
}

// A key moves with its first use, also in a minute in which it was used already, by this process or another; and once,
// however often it is used until then.
func TestKeysMoveInTheMinuteOfAUse(t *testing.T) {
	is := is.New(t)
	one := svc.Pepper{Version: "1", Secret: []byte("the first pepper of two")}
	two := svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
	h, store, clock := counted(t, func(c *svc.Config) { c.Keys.Peppers = []svc.Pepper{one} })
	with := func(peppers ...svc.Pepper) *host {
		return newHost(t, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, peppers })
	}
	key := issue(t, h, alice)
	is.True(h.good(key))
	h.FlushUses(t.Context())
	is.True(!h.read(t, key.ID).LastUsedAt.IsZero())

	both := with(two, one)
	for range 10 {
		is.True(both.good(key))
	}
	is.Equal(both.UsesWaiting(), 1)
	both.FlushUses(t.Context())
	is.Equal(h.read(t, key.ID).Pepper, "2")
	is.Equal(store.changed, []string{key.ID})
	is.True(both.good(key))
	is.Equal(both.UsesWaiting(), 0)
	is.True(with(two, svc.Pepper{Version: "1", Retired: true}).good(key))
}

// Under a pepper that is not known no key is good, not even one whose hash is right under another.
func TestUnknownPepperChecksNothing(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := issue(t, h, alice)
	forged := h.read(t, key.ID)
	forged.Pepper = "unknown"
	store := memstore.New()
	is.NoErr(store.CreateAPIKey(t.Context(), forged))
	watch := &watchedStore{Store: store}
	other := newHost(t, func(c *svc.Config) { c.Store = watch })
	eventually(t, func() bool {
		before := watch.reads.Load()
		is.True(!other.good(key))
		return watch.reads.Load() == before // what is remembered of it is no better
	})
}
