package cache_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
)

func key(n int) cache.Key { return cache.Key{uint64(n), uint64(n) * 3} }

// value returns a value whose words all follow from a key and a number.
func value(n int, number uint64) (v cache.Value) {
	for i := range v {
		v[i] = number<<20 + uint64(n)*uint64(i+1)
	}
	return v
}

// numberIn returns the number in a value of a key, or false when the words do not belong together.
func numberIn(n int, v cache.Value) (number uint64, whole bool) {
	number = (v[0] - uint64(n)) >> 20
	return number, v == value(n, number)
}

func keep(r *cache.Records, n int, number uint64) {
	r.Put(r.Fence(key(n)), key(n), value(n, number), uint32(n))
}

// kept counts how many of the first n keys are cached, each with its own value and mark.
func kept(t *testing.T, r *cache.Records, n int) (count int) {
	t.Helper()
	for i := range n {
		if v, mark, ok := r.Get(key(i)); ok {
			count++
			if _, whole := numberIn(i, v); !whole || mark != uint32(i) {
				t.Fatalf("%d is %v, marked %d", i, v, mark)
			}
		}
	}
	return count
}

// All keys up to the capacity fit, also after Drop and Clear.
func TestRecordsHoldTheirCapacity(t *testing.T) {
	for _, capacity := range []int{1, 5000} {
		r := cache.NewRecords(capacity)
		for range 2 {
			for i := range capacity {
				keep(r, i, 1)
			}
			expect.Holds(t, kept(t, r, capacity) == capacity, capacity)
			for i := range capacity {
				r.Drop(key(i))
			}
			for i := range capacity {
				keep(r, capacity+i, 1)
			}
			expect.Holds(t, kept(t, r, 2*capacity) == capacity, capacity)
			expect.Holds(t, r.Bytes() > int64(100*capacity) && (r.Bytes() < int64(200*capacity) || capacity == 1), capacity, r.Bytes())
			r.Clear()
			expect.Holds(t, r.Bytes() == 0 && r.Raise(key(capacity), 0), capacity)
		}
	}
}

func TestRaise(t *testing.T) {
	is := is.New(t)
	r := cache.NewRecords(100)
	is.True(r.Raise(key(1), 7)) // nothing is cached
	r.Put(r.Fence(key(1)), key(1), value(1, 1), 5)
	is.True(!r.Raise(key(1), 4))
	is.True(!r.Raise(key(1), 5))
	is.True(r.Raise(key(1), 7))
	is.True(!r.Raise(key(1), 7))
	v, mark, ok := r.Get(key(1))
	is.True(ok)
	is.Equal(v, value(1, 1))
	is.Equal(mark, uint32(7))
	r.Drop(key(1))
	is.True(r.Raise(key(1), 7))
}

// When many callers raise a mark to one height, one of them succeeds, while the keys stay.
func TestOneRaises(t *testing.T) {
	r := cache.NewRecords(100)
	for n := range 10 {
		keep(r, n, 1)
	}
	var raised [10]atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for height := range uint32(1000) {
				for n := range raised {
					if r.Raise(key(n), 1+height) {
						raised[n].Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	for n := range raised {
		if times := raised[n].Load(); times > 1000 || times < 1 {
			t.Errorf("raised %d times", times)
		}
		if _, mark, _ := r.Get(key(n)); mark != 1000 {
			t.Errorf("the mark is %d", mark)
		}
	}
}

// Whatever writers do, a reader finds words and a mark of its own key, all of one write.
func TestRecordsAreWhole(t *testing.T) {
	small := cache.NewRecords(1)
	many := make([]int, 3000)
	for i := range many {
		many[i] = i
	}
	for _, c := range []struct {
		name    string
		records *cache.Records
		keys    []int
		clear   int // once in so many puts
	}{
		{"one for one record", small, []int{0}, 1000},
		{"some for one record", small, rivals(small, 3), 1000},
		{"many", cache.NewRecords(500), many, 5000},
	} {
		found, torn := upset(c.records, c.keys, c.clear)
		expect.Holds(t, torn == 0, c.name, found, torn)
	}
}

// rivals returns count keys that compete for one record.
func rivals(r *cache.Records, count int) []int {
	found := []int{0}
	for n := 1; len(found) < count; n++ {
		keep(r, 0, 1)
		keep(r, n, 1)
		if _, _, ok := r.Get(key(0)); !ok {
			found = append(found, n)
		}
	}
	return found
}

// upset reads and writes records concurrently. It counts the records found, and the torn ones among
// them.
func upset(r *cache.Records, keys []int, clear int) (found, torn int64) {
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	var all, bad atomic.Int64
	for range 2 {
		writers.Go(func() {
			for i := 0; i < 20_000 || all.Load() < 100; i++ {
				n := keys[rand.IntN(len(keys))]
				switch {
				case i%clear == 0:
					r.Clear()
				case i%10 == 0:
					r.Drop(key(n))
				default:
					r.Put(r.Fence(key(n)), key(n), value(n, rand.Uint64N(1<<40)), uint32(n)<<16)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				n := keys[rand.IntN(len(keys))]
				v, mark, ok := r.Get(key(n))
				if !ok {
					continue
				}
				all.Add(1)
				if _, whole := numberIn(n, v); !whole || int(mark>>16) != n {
					bad.Add(1)
				}
				r.Raise(key(n), uint32(n)<<16+rand.Uint32N(1<<16))
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	return all.Load(), bad.Load()
}

// thing is a value that shares most of its memory with others.
type thing struct {
	text  string
	share *cache.Share
}

func weighThing(_ int, v thing) (int64, *cache.Share) { return int64(len(v.text)), v.share }

// All caches of a budget together stay within it. Dropped entries no longer count.
func TestBudgetHolds(t *testing.T) {
	is := is.New(t)
	const most = 1 << 20
	b := cache.NewBudget(most)
	caches := []*cache.Cache[int, thing]{
		cache.NewWithin(10_000, spread, b, weighThing), cache.NewWithin(7, spread, b, weighThing), cache.NewWithin(100, spread, b, weighThing),
	}
	part := cache.NewShare(50_000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 20_000 {
				c, key := caches[rand.IntN(len(caches))], rand.IntN(3000)
				switch n := rand.IntN(1000); {
				case n == 0:
					c.Clear()
				case n < 100:
					c.Drop(key)
				case n < 300:
					c.Get(key)
				default:
					c.Put(c.Fence(key), key, thing{strings.Repeat("x", i%5000), cache.NewShare(int64(n), part)})
				}
			}
		})
	}
	all.Wait()
	caches[0].Put(caches[0].Fence(1), 1, thing{})
	is.True(b.Used() <= most)
	is.True(b.Used() > 0)
	b.Drain()
	is.Equal(b.Used(), int64(0))
}

// A share counts once, while at least one entry has it.
func TestShareCountsOnce(t *testing.T) {
	is := is.New(t)
	b := cache.NewBudget(1 << 30)
	part := cache.NewShare(1000)
	one, other := cache.NewShare(10, part), cache.NewShare(20, part)
	is.Equal(one.Bytes(), int64(1010))
	b.Hold(1, one)
	b.Hold(2, one)
	b.Hold(3, other)
	b.Hold(4, nil)
	is.Equal(b.Used(), int64(1+2+3+4+10+20+1000))
	b.Release(1, one)
	b.Release(3, other)
	is.Equal(b.Used(), int64(2+4+10+1000))
	b.Release(2, one)
	is.Equal(b.Used(), int64(4))
}

// A value of more than an eighth of the budget is not cached.
func TestBudgetRefusesWhatIsTooLarge(t *testing.T) {
	b := cache.NewBudget(1 << 20)
	c := cache.NewWithin(100, spread, b, weighThing)
	c.Put(c.Fence(1), 1, thing{})
	entry := b.Used()
	c.Put(c.Fence(2), 2, thing{share: cache.NewShare(1<<17 - entry + 1)})
	c.Put(c.Fence(3), 3, thing{share: cache.NewShare(1<<17 - entry)})
	_, large := c.Get(2)
	_, small := c.Get(3)
	is.New(t).True(entry > 0 && !large && small)
}

func TestBudgetKeepsWhatIsUsed(t *testing.T) {
	b := cache.NewBudget(1 << 20)
	c := cache.NewWithin(10_000, spread, b, weighThing)
	c.Put(c.Fence(-1), -1, thing{text: "used"})
	for i := range 20_000 {
		c.Get(-1)
		c.Put(c.Fence(i), i, thing{text: strings.Repeat("x", 100)})
	}
	_, ok := c.Get(-1)
	is.New(t).True(ok)
}

// Size is at least the heap bytes of a value, and at most three times as many.
func TestSizeIsHonest(t *testing.T) {
	type row struct {
		ID    string
		Email *string
		Tags  []string
		Raw   [][]byte
		By    map[string]int
	}
	word := func(n int) string { return strings.Repeat("x", n) }
	for name, of := range map[string]func(i int) any{
		"strings": func(i int) any {
			s := make([]string, 0, 10)
			return &row{ID: word(i%40 + 1), Tags: append(s, word(9), word(i%100))}
		},
		"pointers": func(i int) any {
			s := word(20)
			return &row{Email: &s}
		},
		"raw":  func(i int) any { return &row{Raw: [][]byte{[]byte(word(i % 300)), []byte(word(24))}} },
		"long": func(i int) any { return &row{ID: word(10_000)} },
		"map": func(i int) any {
			r := &row{By: map[string]int{}}
			for k := range i % 50 {
				r.By[word(k)] = k
			}
			return r
		},
	} {
		const n = 5000
		all := make([]any, n)
		before := heaptest.Live()
		for i := range all {
			all[i] = of(i)
		}
		real, said := heaptest.Live()-before, int64(0)
		for _, v := range all {
			said += cache.Size(v)
		}
		t.Logf("%s: %d bytes, estimated %d", name, real, said)
		expect.Holds(t, said >= real*9/10 && said <= 3*real, name, real, said)
	}
}
