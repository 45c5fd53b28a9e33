package cache_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/heaptest"
)

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
