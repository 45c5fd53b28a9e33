package cache_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
)

func spread(n int) uint64 { return uint64(n) * 0x9E3779B97F4A7C15 >> 20 }

func put(c *cache.Cache[int, string], key int, value string) { c.Put(c.Fence(key), key, value) }

func TestGetFindsWhatWasPut(t *testing.T) {
	is := is.New(t)
	c := cache.New[int, string](100, spread)
	_, ok := c.Get(1)
	is.True(!ok)
	put(c, 1, "one")
	put(c, 1, "uno")
	put(c, 2, "two")
	one, ok := c.Get(1)
	is.True(ok)
	is.Equal(one, "uno")
}

func TestDropAndClear(t *testing.T) {
	is := is.New(t)
	for name, forget := range map[string]func(*cache.Cache[int, string]){
		"drop":  func(c *cache.Cache[int, string]) { c.Drop(1) },
		"clear": func(c *cache.Cache[int, string]) { c.Clear() },
		"like": func(c *cache.Cache[int, string]) {
			c.DropLike(1, func(key *int, value string) bool { return *key == 1 && value == "one" })
		},
		"where": func(c *cache.Cache[int, string]) {
			c.DropWhere(func(key *int, value string) bool { return *key == 1 && value == "one" })
		},
	} {
		c := cache.New[int, string](100, spread)
		put(c, 1, "one")
		fence, moment := c.Fence(1), c.Now()
		forget(c)
		_, ok := c.Get(1)
		is.True(!ok) // the old entry is gone
		c.Put(fence, 1, "stale")
		c.PutSince(moment, 1, "stale")
		_, ok = c.Get(1)
		is.True(!ok) // the load under way is refused
		c.PutSince(c.Now(), 1, name)
		again, _ := c.Get(1)
		is.Equal(again, name)
	}
}

// A sweep keeps what does not match, and refuses every load that is under way.
func TestDropWhereKeepsTheOthers(t *testing.T) {
	is := is.New(t)
	c := cache.New[int, string](100, spread)
	for i := range 20 {
		put(c, i, "kept")
	}
	fence := c.Fence(30)
	c.DropWhere(func(key *int, _ string) bool { return *key%2 == 0 })
	c.Put(fence, 30, "under way")
	for i := range 31 {
		_, ok := c.Get(i)
		is.Equal(ok, i < 20 && i%2 == 1)
	}
}

func TestBounded(t *testing.T) {
	is := is.New(t)
	c := cache.New[int, string](100, spread)
	for i := range 100_000 {
		put(c, i, fmt.Sprint(i))
	}
	kept := 0
	for i := range 100_000 {
		if value, ok := c.Get(i); ok {
			is.Equal(value, fmt.Sprint(i))
			kept++
		}
	}
	is.True(kept >= 50 && kept <= 200)
}

// Used entries stay while unused ones pass through.
func TestKeepsWhatIsUsed(t *testing.T) {
	is := is.New(t)
	c := cache.New[int, string](1000, spread)
	for i := range 100 {
		put(c, i, "used")
	}
	found := 0
	for i := range 50_000 {
		put(c, 1000+i, "once")
		if _, ok := c.Get(i % 100); ok {
			found++
		}
	}
	is.True(found > 45_000)
}

func TestOneLoads(t *testing.T) {
	is := is.New(t)
	c := cache.New[int, string](100, spread)
	fence := c.Fence(1)
	done, wait := c.Turn(fence, 1)
	is.True(done != nil && wait == nil)
	none, others := c.Turn(fence, 1)
	is.True(none == nil && others != nil)
	c.Drop(1)
	after, _ := c.Turn(c.Fence(1), 1)
	is.True(after != nil) // a load behind an earlier fence does not block
	after()
	done()
	<-others
	again, _ := c.Turn(fence, 1)
	is.True(again != nil)
}

// After a change ends, no new read finds a value that was loaded before it.
func TestNothingStaleIsFound(t *testing.T) {
	c := cache.New[int, uint64](64, spread)
	findsNothingStale(t, func(i, key int) {
		switch {
		case i%10 == 0:
			c.Clear()
		case i%3 == 0:
			c.DropWhere(func(other *int, _ uint64) bool { return *other == key })
		default:
			c.Drop(key)
		}
	}, c.Get, func(reader, key int, read func() uint64) {
		if fence, moment := c.Fence(key), c.Now(); reader == 0 {
			c.PutSince(moment, key, read())
		} else {
			c.Put(fence, key, read())
		}
	})
}

// findsNothingStale changes numbers of keys and drops them, in turn i, while readers get or load them.
func findsNothingStale(t *testing.T, drop func(i, key int), get func(key int) (uint64, bool), load func(reader, key int, read func() uint64)) {
	t.Helper()
	var source, ended [8]atomic.Uint64
	var readers, writers sync.WaitGroup
	var stop atomic.Bool
	var found atomic.Int64
	for half := range 2 {
		writers.Go(func() {
			for i := 0; i < 20_000 || found.Load() < 100; i++ {
				if i%5 == 0 {
					runtime.Gosched()
				}
				key := half*4 + rand.IntN(4)
				now := source[key].Add(1)
				drop(i, key)
				ended[key].Store(now)
			}
		})
	}
	for reader := range 3 {
		readers.Go(func() {
			for !stop.Load() {
				key := rand.IntN(len(source))
				least := ended[key].Load()
				value, ok := get(key)
				if !ok {
					load(reader, key, func() uint64 {
						defer runtime.Gosched()
						return source[key].Load()
					})
				} else if found.Add(1); value < least {
					t.Errorf("%d is %d, and was %d before", key, value, least)
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}
