package cache_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/expect"
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
