package readcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/changefeed"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/rate"
)

// store is a store whose changes a test announces.
type store struct {
	mu      sync.Mutex
	next    Changes
	err     error
	version uint64 // what Look says
	more    chan struct{}

	told  time.Duration // how old an answer to a follower is
	older int64         // generations that such an answer lacks
	deaf  error         // of AwaitChange
	asked int           // calls of Next
}

func (s *store) Next(ctx context.Context, _ int64) (Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.next
	s.asked++
	if call := changefeed.Of(ctx); call != nil {
		call.AsOf = time.Now().Add(-s.told)
		next.Generation -= s.older
	}
	return next, cmp.Or(s.err, ctx.Err())
}

func (s *store) AwaitChange(ctx context.Context, _ int64) error {
	var deaf error
	if s.set(func() { deaf = s.deaf }); deaf != nil {
		return deaf
	}
	select {
	case <-s.more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}

func (s *store) Look(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.err
}

// commits changes what drop drops, and tells nobody: a look shows it.
func (s *store) commits(generation int64, drop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.next = Changes{Generation: generation, Drop: drop}
}

func (s *store) announce(generation int64, drop func()) {
	s.set(func() { s.next = Changes{Generation: generation, Drop: drop} })
	s.more <- struct{}{}
}

func (s *store) fails(err error) { s.set(func() { s.err = err }) }

func (s *store) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// following is a cache that follows a store, and a One in it.
type following struct {
	*Cache
	*store
	one   *One[string]
	t     *testing.T
	stop  func()
	reads int // of the One
}

// follow runs a test of a cache in the bubble of its own time. Its store says a version when it is looked at.
func follow(t *testing.T, version uint64, test func(is *is.I, f *following)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &store{more: make(chan struct{}, 1), next: Changes{Generation: 1, Reset: true, Drop: func() {}}, version: version}
		c := New(100, cache.NewBudget(1<<20), s, func(follow func(context.Context)) { go follow(ctx) })
		one := NewOne(c, 100, func(text string) int64 { return int64(len(text)) })
		f := &following{Cache: c, store: s, one: one, t: t, stop: stop}
		f.Follow()
		synctest.Wait()
		test(is.New(t), f)
		stop()
		synctest.Wait()
	})
}

// load loads the One, which a read finds to be text as of a generation.
func (f *following) load(text string, generation int64) string {
	found, err := f.one.Load(f.t.Context(), func(int64) (string, int64, error) { f.reads++; return text, generation, nil })
	if err != nil {
		f.t.Error(err)
	}
	return found
}

// What is large, and what could not be read, is read again.
func TestWhatIsNotKept(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		down := errors.New("down")
		for range 3 {
			f.load(string(make([]byte, 101)), 1)
			_, err := f.one.Load(f.t.Context(), func(int64) (string, int64, error) { return "", 0, down })
			is.Equal(err, down)
		}
		is.Equal(f.load("a", 1), "a")
		is.Equal(f.reads, 4)
		is.Equal(f.one.Bytes(), int64(1))
	})
}

func TestDroppedWhileRead(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		_, _ = f.one.Load(f.t.Context(), func(int64) (string, int64, error) { f.one.Clear(); return "old", 1, nil })
		is.Equal(f.load("new", 1), "new")
		is.Equal(f.reads, 1)
		f.Reset()
		is.Equal(f.load("newer", 1), "newer")
	})
}

// An older value holds once all changes are applied, and not while a read has shown a later generation.
func TestOlderValueHolds(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		f.load("a", 1)
		f.fails(errors.New("down"))
		f.Hear(2)
		f.load("b", 2)
		is.Equal(f.reads, 2)
		f.fails(nil)
		f.announce(3, func() {})
		time.Sleep(time.Second)
		is.Equal(f.load("c", 3), "b")
		is.Equal(f.reads, 2)
		f.announce(4, f.one.Clear)
		synctest.Wait()
		is.Equal(f.load("d", 4), "d")
		f.Hear(4)
		f.announce(2, func() {}) // the database is as a backup has it
		synctest.Wait()
		is.Equal(f.load("e", 2), f.load("f", 2))
		f.set(func() { f.next = Changes{Generation: 9, Drop: func() {}} })
		f.Hear(9) // wakes the follower
		synctest.Wait()
		is.True(!f.behind())
	})
}

// A key counts only with a holder that belongs to the same view: here a read has shown generation 2,
// whose changes are not applied, and only the key was read since.
func TestKeyWithAnOlderHolder(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		f.stop() // what is heard is not asked about
		synctest.Wait()
		id, alice := keyID(1), Holder{Kind: policy.User, ID: "alice"}
		keep := func(key, holder int64) (found bool) {
			f.keys.keep(f.keys.Fence(keyOf(id)), keyOf(id), Key{Holder: alice, Generation: key})
			f.holders.PutSince(f.holders.Now(), alice, &Standing{Generation: holder})
			_, _, found = f.Key(id)
			return found
		}
		is.True(keep(1, 1))
		f.Hear(2)
		is.True(!keep(1, 2))
		is.True(!keep(2, 1))
		is.True(keep(2, 2))
	})
}

// Where a look is cheap, a commit of another process counts with the next use.
func TestLookBeforeUse(t *testing.T) {
	follow(t, 1, func(is *is.I, f *following) {
		f.load("a", 1)
		for generation := int64(2); generation < 10; generation++ {
			f.commits(generation, func() {}) // nothing that is cached
			_, cached := f.one.get()
			is.True(cached)
			f.commits(generation, f.one.Clear)
			_, cached = f.one.get()
			is.True(!cached)
			is.Equal(f.load("b", generation), "b")
			is.Equal(f.reads, int(generation))
		}
	})
}

// A store that cannot be looked at is read each time, whatever it has said before.
func TestFailedLook(t *testing.T) {
	follow(t, 1, func(is *is.I, f *following) {
		f.fails(errors.New("down"))
		for range 3 {
			f.load("a", 1)
		}
		is.Equal(f.reads, 3)
		f.fails(nil)
		for range 3 {
			f.load("a", 1)
		}
		is.Equal(f.reads, 3)
	})
}

// After five seconds without the store, nothing is used.
func TestHardStop(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		f.load("a", 1)
		f.fails(errors.New("down"))
		time.Sleep(trusted + 2*time.Second)
		f.load("a", 1)
		is.Equal(f.reads, 2)
		is.True(!f.fresh())
		s := f.Stats()
		is.True(s.Seen && s.Age >= trusted)
		f.fails(nil)
		ended, end := context.WithCancel(f.t.Context())
		end()
		is.NoErr(f.CatchUp(ended)) // others share it
	})
}

// What a follower takes was seen when the store knew it, and lacks nothing that a read has shown.
func TestWhatTheStoreWasTold(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		f.load("a", 1)
		f.set(func() { f.told, f.older = 3*time.Second, 1 })
		f.commits(2, func() {})
		f.Hear(2)
		time.Sleep(time.Second)
		is.Equal(f.load("b", 2), "a")
		f.set(func() { f.older = 0 })
		time.Sleep(trusted)
		is.True(f.Stats().Age >= 3*time.Second)
	})
}

// A store that cannot wait is asked once in a while.
func TestFailedWait(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		f.set(func() { f.deaf, f.asked = errors.New("down"), 0 })
		time.Sleep(2 * time.Second)
		f.set(func() { is.True(f.asked > 5 && f.asked < 20) })
	})
}

func TestOneCallerReads(t *testing.T) {
	follow(t, 0, func(is *is.I, f *following) {
		for range 10 {
			go func() {
				text, err := f.one.Load(f.t.Context(), func(int64) (string, int64, error) {
					f.reads++
					time.Sleep(time.Millisecond)
					return "a", 1, nil
				})
				is.NoErr(err)
				is.Equal(text, "a")
			}()
		}
		time.Sleep(10 * time.Millisecond)
		is.Equal(f.load("b", 1), "a") // it is kept
		is.Equal(f.reads, 1)
	})
}

func TestNilKeepsNothing(t *testing.T) {
	is, n := is.New(t), 0
	var c *Cache
	o := NewOne(c, 100, func(string) int64 { return 0 })
	for range 2 {
		_, _ = o.Load(t.Context(), func(int64) (string, int64, error) { n++; return "a", 1, nil })
		_, _, err := c.LoadStanding(t.Context(), Holder{}, "b", func(
			context.Context, Holder, string,
		) (*Standing, Bank, error) {
			n++
			return nil, Bank{}, nil
		})
		is.NoErr(err)
	}
	is.Equal(n, 4)
	c.Follow()
	c.Hear(1)
	c.Drop(Changed{Access: true})
	c.DropKey(keyID(1))
	o.Clear()
	is.Equal(o.Bytes()+c.Bytes(), int64(0))
	is.True(!c.UseKey(keyID(1), 1))
	is.NoErr(c.CatchUp(t.Context()))
	_, known := c.Again(nil, "", nil, "", "", &policy.Context{})
	is.True(!known)
}

func keyID(n int) string { return fmt.Sprintf("%016d", n) }

func (c *keys) put(n, of int) {
	id := keyOf(keyID(n))
	c.keep(c.Fence(id), id, Key{Holder: Holder{Kind: policy.User, ID: keyID(of)}})
}

func TestKeysAreWhatWasKept(t *testing.T) {
	is := is.New(t)
	cached, id := newKeys(1000, 10), keyOf(keyID(1))
	for _, flag := range []bool{false, true} {
		for _, pepper := range []int{-1, 0, 1, 1<<20 - 2} {
			key := Key{
				Holder: Holder{policy.ServiceAccount, "ci", "narrow"}, Hash: sha256.Sum256([]byte("key")),
				Pepper: pepper, Closed: flag, Unsealed: !flag, Rate: rate.Rate{PerSecond: 0.1, Burst: math.MaxInt},
				Expires: 1 << 61, Used: 1 << 31, Generation: 1 << 62,
			}
			cached.keep(cached.Fence(id), id, key)
			found, ok := cached.find(id)
			is.True(ok)
			is.Equal(found, key)
		}
	}
}

// What is cleared counts no more, and a number that a reader still has refers to no other holder.
func TestClearedHolders(t *testing.T) {
	is := is.New(t)
	cached := newKeys(1000, 10)
	cached.put(1, 1)
	number := cached.holders.number(rated{Holder: Holder{policy.User, keyID(1), ""}})
	full, kept := cached.Bytes(), cached.holders.bytes.Load()
	cached.Clear()
	is.True(kept >= holderBytes && cached.Bytes() <= full-kept)
	_, found := cached.holders.holder(number)
	is.True(!found)
	cached.put(2, 2)
	_, found = cached.holders.holder(number)
	is.True(!found)
	_, found = cached.find(keyOf(keyID(2)))
	is.True(found)
}

// However many holders there are, a cached key is of its own holder, or it is not there.
func TestKeysOfManyHolders(t *testing.T) {
	is := is.New(t)
	cached := newKeys(1000, 10)
	for n := range 9 {
		cached.put(n, n)
		cached.put(100+n, n)
	}
	for n := range 9 {
		key, found := cached.find(keyOf(keyID(100 + n)))
		is.True(found)
		is.Equal(key.Holder.ID, keyID(n))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5000 {
				n := rand.IntN(100)
				cached.put(n, n)
				n = rand.IntN(100)
				if key, found := cached.find(keyOf(keyID(n))); found && key.Holder.ID != keyID(n) {
					t.Errorf("%d is said to be of %s", n, key.Holder.ID)
				}
			}
		})
	}
	all.Wait()
	is.True(cached.holders.bytes.Load() < 10*(holderBytes+200)) // those that are forgotten do not count
	cached.put(1, 1)
	_, found := cached.find(keyOf(keyID(1)))
	is.True(found)
}
