package cache_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/expect"
)

func spread(n int) uint64 { return uint64(n) * 0x9E3779B97F4A7C15 >> 20 }

// kind is a Cache of numbers, or Records.
type kind struct {
	get         func(n int) (number uint64, ok bool)
	load        []func(n int) (put func(number uint64)) // ways to begin a load, whose end puts
	forget      []func(n int)                           // ways to drop what is cached of n, or more
	least, most int                                     // how many a capacity of 1,000 keeps of many
}

func (k kind) put(n int, number uint64) { k.load[0](n)(number) }

func kinds(t *testing.T, capacity int) map[string]kind {
	c, r := cache.New[int, uint64](capacity, spread), cache.NewRecords(capacity)
	return map[string]kind{
		"Cache": {
			get: c.Get, least: 500, most: 2000,
			load: []func(int) func(uint64){
				func(n int) func(uint64) { fence := c.Fence(n); return func(number uint64) { c.Put(fence, n, number) } },
				func(n int) func(uint64) { at := c.Now(); return func(number uint64) { c.PutSince(at, n, number) } },
			},
			forget: []func(int){
				c.Drop, func(int) { c.Clear() },
				func(n int) { c.DropLike(n, func(other *int, _ uint64) bool { return *other == n }) },
				func(n int) { c.DropWhere(func(other *int, _ uint64) bool { return *other == n }) },
			},
		},
		"Records": {
			least: 1000, most: 3000,
			get: func(n int) (uint64, bool) {
				v, mark, ok := r.Get(key(n))
				number, whole := numberIn(n, v)
				expect.Holds(t, !ok || whole && mark == uint32(n), n, v, mark)
				return number, ok
			},
			load: []func(int) func(uint64){func(n int) func(uint64) {
				fence := r.Fence(key(n))
				return func(number uint64) { r.Put(fence, key(n), value(n, number), uint32(n)) }
			}},
			forget: []func(int){func(n int) { r.Drop(key(n)) }, func(int) { r.Clear() }},
		},
	}
}

func TestGetFindsWhatWasPut(t *testing.T) {
	is := is.New(t)
	for _, c := range kinds(t, 100) {
		_, ok := c.get(1)
		is.True(!ok)
		c.put(1, 10)
		c.put(1, 11)
		c.put(2, 20)
		one, ok := c.get(1)
		is.True(ok)
		is.Equal(one, uint64(11))
	}
}

func TestDropAndClear(t *testing.T) {
	is := is.New(t)
	for _, c := range kinds(t, 100) {
		for _, forget := range c.forget {
			c.put(1, 10)
			var under []func(uint64) // way
			for _, load := range c.load {
				under = append(under, load(1))
			}
			forget(1)
			_, ok := c.get(1)
			is.True(!ok) // the old entry is gone
			for _, put := range under {
				put(10)
				_, ok = c.get(1)
				is.True(!ok) // the load under way is refused
			}
			for _, load := range c.load {
				load(1)(11)
				under[0](10)
				again, _ := c.get(1)
				is.Equal(again, uint64(11))
				c.forget[0](1)
			}
		}
	}
}

// A sweep keeps what does not match, and refuses every load that is under way.
func TestDropWhereKeepsTheOthers(t *testing.T) {
	is := is.New(t)
	c := cache.New[int, string](100, spread)
	for i := range 20 {
		c.Put(c.Fence(i), i, "kept")
	}
	fence, before, within := c.Fence(30), c.Now(), cache.Moment(0)
	c.DropWhere(func(key *int, _ string) bool { within = c.Now(); return *key%2 == 0 })
	is.True(within != before)
	c.Put(fence, 30, "under way")
	c.PutSince(within, 31, "begun during the sweep")
	for i := range 32 {
		_, ok := c.Get(i)
		is.Equal(ok, i < 20 && i%2 == 1)
	}
}

func TestBounded(t *testing.T) {
	for name, c := range kinds(t, 1000) {
		for i := range 20_000 {
			c.put(i, uint64(i))
		}
		kept := 0
		for i := range 20_000 {
			if number, ok := c.get(i); ok {
				is.New(t).Equal(number, uint64(i))
				kept++
			}
		}
		expect.Holds(t, kept >= c.least && kept <= c.most, name, kept)
	}
}

func TestKeepsWhatIsUsed(t *testing.T) {
	for name, c := range kinds(t, 1000) {
		for i := range 100 {
			c.put(i, 1)
		}
		found := 0
		for i := range 50_000 {
			c.put(1000+i, 1)
			if _, ok := c.get(i % 100); ok {
				found++
			}
		}
		expect.Holds(t, found > 45_000, name, found)
	}
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
	for name, c := range kinds(t, 64) {
		t.Run(name, func(t *testing.T) { findsNothingStale(t, c) })
	}
}

// findsNothingStale changes numbers of keys and drops them, while readers get or load them.
func findsNothingStale(t *testing.T, c kind) {
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
				if i%3 == 0 {
					c.forget[i/3%len(c.forget)](key)
				} else {
					c.forget[0](key)
				}
				ended[key].Store(now)
			}
		})
	}
	for reader := range 3 {
		readers.Go(func() {
			for !stop.Load() {
				key := rand.IntN(len(source))
				least := ended[key].Load()
				value, ok := c.get(key)
				if !ok {
					put := c.load[reader%len(c.load)](key)
					now := source[key].Load()
					runtime.Gosched()
					put(now)
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
