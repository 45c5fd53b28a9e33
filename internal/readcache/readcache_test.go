package readcache

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
)

// store is a store whose changes a test announces.
type store struct {
	mu      sync.Mutex
	next    Changes
	err     error
	version uint64 // what Look says
	looks   int
	more    chan struct{}
}

func newStore() *store {
	return &store{more: make(chan struct{}, 1), next: Changes{Generation: 1, Reset: true, Drop: func() {}}}
}

func (s *store) Next(context.Context, int64) (Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next, s.err
}

func (s *store) AwaitChange(ctx context.Context, _ int64) error {
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
	s.looks++
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
	s.mu.Lock()
	s.next = Changes{Generation: generation, Drop: drop}
	s.mu.Unlock()
	s.more <- struct{}{}
}

func (s *store) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// followed returns a cache of a store, and a One in it, in the bubble of a test.
func followed(t *testing.T, s *store) (*Cache, *One[string]) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	c := New(100, cache.NewBudget(1<<20), s, func(follow func(context.Context)) { go follow(ctx) })
	o := NewOne(c, 100, func(text string) int64 { return int64(len(text)) })
	c.Follow()
	synctest.Wait()
	t.Cleanup(func() { stop(); synctest.Wait() })
	return c, o
}

// reads makes a function that returns text as of a generation, and counts its calls.
func reads(n *int, text string, generation int64) func(int64) (string, int64, error) {
	return func(int64) (string, int64, error) { *n++; return text, generation, nil }
}

func TestOneIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n := is.New(t), 0
		_, o := followed(t, newStore())
		for range 3 {
			text, err := o.Load(t.Context(), reads(&n, "a", 1))
			is.NoErr(err)
			is.Equal(text, "a")
		}
		is.Equal(n, 1)
	})
}

func TestLargeOneIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		_, o := followed(t, newStore())
		for range 3 {
			_, _ = o.Load(t.Context(), reads(&n, string(make([]byte, 101)), 1))
		}
		is.New(t).Equal(n, 3)
	})
}

func TestFailedReadIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n, down := is.New(t), 0, errors.New("down")
		_, o := followed(t, newStore())
		_, err := o.Load(t.Context(), func(int64) (string, int64, error) { return "", 0, down })
		is.Equal(err, down)
		_, err = o.Load(t.Context(), reads(&n, "a", 1))
		is.NoErr(err)
		is.Equal(n, 1)
	})
}

// A value that was dropped while it was read is not kept.
func TestDroppedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n := is.New(t), 0
		_, o := followed(t, newStore())
		_, _ = o.Load(t.Context(), func(int64) (string, int64, error) { o.Clear(); return "old", 1, nil })
		text, _ := o.Load(t.Context(), reads(&n, "new", 1))
		is.Equal(text, "new")
		is.Equal(n, 1)
	})
}

// An older value holds once all changes are applied, and not while a read has shown a later generation.
func TestOlderValueHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n, s := is.New(t), 0, newStore()
		c, o := followed(t, s)
		_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		s.fails(errors.New("down"))
		c.Hear(2)
		_, _ = o.Load(t.Context(), reads(&n, "b", 2))
		is.Equal(n, 2)
		s.fails(nil)
		s.announce(3, func() {})
		time.Sleep(time.Second)
		text, _ := o.Load(t.Context(), reads(&n, "c", 3))
		is.Equal(text, "b")
		is.Equal(n, 2)
	})
}

func TestFeedDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n, s := is.New(t), 0, newStore()
		_, o := followed(t, s)
		_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		s.announce(2, o.Clear)
		synctest.Wait()
		text, _ := o.Load(t.Context(), reads(&n, "b", 2))
		is.Equal(text, "b")
	})
}

// A key counts only with a holder that belongs to the same view: here a read has shown generation 2,
// whose changes are not applied, and only the key was read since.
func TestKeyWithAnOlderHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		ctx, stop := context.WithCancel(t.Context())
		c := New(100, cache.NewBudget(1<<20), newStore(), func(follow func(context.Context)) { go follow(ctx) })
		c.Follow()
		synctest.Wait()
		stop() // what is heard is not asked about
		synctest.Wait()
		id, alice := keyID(1), Holder{Kind: policy.User, ID: "alice"}
		keep := func(key, holder int64) (found bool) {
			c.keys.keep(c.keys.Fence(keyOf(id)), keyOf(id), Key{Holder: alice, Generation: key})
			c.holders.PutSince(c.holders.Now(), alice, &Standing{Generation: holder})
			_, _, found = c.Key(id)
			return found
		}
		is.True(keep(1, 1))
		c.Hear(2)
		is.True(!keep(1, 2))
		is.True(!keep(2, 1))
		is.True(keep(2, 2))
	})
}

// Where a look is cheap, a commit of another process counts with the next use.
func TestLookBeforeUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n, s := is.New(t), 0, newStore()
		s.version = 1
		_, o := followed(t, s)
		_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		for generation := int64(2); generation < 10; generation++ {
			s.commits(generation, func() {}) // nothing that is cached
			_, cached := o.get()
			is.True(cached)
			s.commits(generation, o.Clear)
			_, cached = o.get()
			is.True(!cached)
			text, err := o.Load(t.Context(), reads(&n, "b", generation))
			is.NoErr(err)
			is.Equal(text, "b")
			is.Equal(n, int(generation))
		}
	})
}

// A store that cannot be looked at is read each time, whatever it has said before.
func TestFailedLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n, s := is.New(t), 0, newStore()
		s.version = 1
		_, o := followed(t, s)
		s.fails(errors.New("down"))
		for range 3 {
			_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		}
		is.Equal(n, 3)
		s.fails(nil)
		for range 3 {
			_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		}
		is.Equal(n, 3)
	})
}

// After five seconds without the store, nothing is used.
func TestHardStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n, s := is.New(t), 0, newStore()
		c, o := followed(t, s)
		_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		s.fails(errors.New("down"))
		time.Sleep(trusted + 2*time.Second)
		_, _ = o.Load(t.Context(), reads(&n, "a", 1))
		is.Equal(n, 2)
		is.True(!c.fresh())
	})
}

// Of concurrent callers one reads.
func TestOneCallerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, n := is.New(t), 0
		_, o := followed(t, newStore())
		for range 10 {
			go func() {
				text, err := o.Load(t.Context(), func(int64) (string, int64, error) {
					n++
					time.Sleep(time.Millisecond)
					return "a", 1, nil
				})
				is.NoErr(err)
				is.Equal(text, "a")
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		is.Equal(n, 1)
	})
}

func TestNilKeepsNothing(t *testing.T) {
	is, n := is.New(t), 0
	var c *Cache
	o := NewOne(c, 100, func(string) int64 { return 0 })
	for range 2 {
		_, _ = o.Load(t.Context(), reads(&n, "a", 1))
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
	is.True(!c.UseKey(keyID(1), 1))
	is.NoErr(c.CatchUp(t.Context()))
	_, known := c.Again(nil, "", nil, "", "", &policy.Context{})
	is.True(!known)
}
