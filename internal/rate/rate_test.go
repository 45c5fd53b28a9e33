package rate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
)

// bucket is the slow reference: the times of all allowed uses. In every span of time that ends now,
// a rate allows Burst uses and those that have become available within.
type bucket struct{ uses []time.Duration }

// room returns how many uses the rate allows now, in intervals as a time.
func (b *bucket) room(r Rate, now time.Duration) time.Duration {
	interval := r.Interval()
	least := time.Duration(r.Burst) * interval
	for i, at := range b.uses {
		since := time.Duration(len(b.uses)-i) * interval
		least = min(least, time.Duration(r.Burst)*interval+(now-at)-since)
	}
	return least
}

func (b *bucket) take(r Rate, now time.Duration) Taken {
	interval := r.Interval()
	refused := b.room(r, now) < interval
	if !refused {
		b.uses = append(b.uses, now)
	}
	t := Taken{Refused: refused, Remaining: int(b.room(r, now) / interval)}
	for one := time.Duration(t.Remaining+1) * interval; ; {
		missing := one - b.room(r, now+t.Next)
		if missing <= 0 {
			return t
		}
		t.Next += missing
	}
}

func drawn(random *rand.Rand) Rate {
	r := Rate{PerSecond: math.Pow(10, random.Float64()*9-4), Burst: 1 + random.IntN(8)}
	if random.IntN(4) == 0 {
		r.PerSecond = float64(1 + random.IntN(5))
	}
	return r
}

// gap draws the time to the next use: often none, often some part of an interval, at times long.
func gap(random *rand.Rand, r Rate) time.Duration {
	switch interval := float64(r.Interval()); random.IntN(6) {
	case 0, 1:
		return 0
	case 2:
		return r.Interval() * time.Duration(random.IntN(3))
	case 3:
		return time.Duration(interval * random.Float64() * 20)
	default:
		return time.Duration(interval * random.Float64() * 2)
	}
}

// wrong compares a way to take with the reference; "" if it finds no difference.
func wrong(random *rand.Rand, take func(r Rate, now time.Duration) Taken) string {
	r, reference := drawn(random), &bucket{}
	var now time.Duration
	for n := range 60 {
		now += gap(random, r)
		want, got := reference.take(r, now), take(r, now)
		if got != want {
			return fmt.Sprintf("%+v, use %d at %s: %+v, want %+v", r, n, now, got, want)
		}
	}
	return ""
}

func TestTakeIsTheReference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 500 {
		l, key := New(1000), Key{byte(n)}
		if problem := wrong(random, func(r Rate, now time.Duration) Taken {
			l.Take(Key{byte(n), 1}, r, now) // another key
			return l.Take(key, r, now)
		}); problem != "" {
			t.Fatal(problem)
		}
	}
}

// The comparison finds limiters that are wrong.
func TestTheReferenceFindsFaults(t *testing.T) {
	var window, n time.Duration // of the fixed window
	for name, faulty := range map[string]func(l *Limiter, r Rate, now time.Duration) Taken{
		"one more":      func(l *Limiter, r Rate, now time.Duration) Taken { r.Burst++; return l.Take(Key{}, r, now) },
		"a faster rate": func(l *Limiter, r Rate, now time.Duration) Taken { r.PerSecond *= 1.1; return l.Take(Key{}, r, now) },
		"refused uses count": func(l *Limiter, r Rate, now time.Duration) Taken {
			taken := l.Take(Key{}, r, now)
			if taken.Refused {
				l.shards = [shards]shard{}
				for range r.Burst {
					l.Take(Key{}, r, now)
				}
			}
			return taken
		},
		"a fixed window": func(_ *Limiter, r Rate, now time.Duration) Taken {
			if now == 0 || now-window >= time.Duration(r.Burst)*r.Interval() {
				window, n = now, 0
			}
			n++
			return Taken{Refused: n > time.Duration(r.Burst), Remaining: int(max(0, time.Duration(r.Burst)-n)), Next: r.Interval()}
		},
	} {
		random, found := rand.New(rand.NewPCG(3, 4)), false
		for range 100 {
			l := New(1000)
			found = found || wrong(random, func(r Rate, now time.Duration) Taken { return faulty(l, r, now) }) != ""
		}
		if !found {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	l, r := New(1000), Rate{PerSecond: 1, Burst: 100}
	for round := range time.Duration(3) {
		var all sync.WaitGroup
		var allowed atomic.Int64
		for range 8 {
			all.Go(func() {
				for range 50 {
					if !l.Take(Key{}, r, round*10*time.Second).Refused {
						allowed.Add(1)
					}
				}
			})
		}
		all.Wait()
		is.New(t).Equal(allowed.Load(), []int64{100, 10, 10}[round])
	}
}

// A change of the rate keeps what was used, up to the new burst.
func TestChangedRate(t *testing.T) {
	is := is.New(t)
	l, slow := New(10), Rate{PerSecond: 0.001, Burst: 10}
	for range 10 {
		is.True(!l.Take(Key{}, slow, 0).Refused)
	}
	fast := Rate{PerSecond: 100, Burst: 10}
	is.Equal(l.Take(Key{}, fast, 0), Taken{Refused: true, Next: 10 * time.Millisecond})
	is.Equal(l.Take(Key{}, fast, 10*time.Millisecond), Taken{Next: 10 * time.Millisecond})
	is.True(l.Take(Key{}, Rate{PerSecond: 100, Burst: 5}, 10*time.Millisecond).Refused)
	is.Equal(l.Take(Key{}, Rate{PerSecond: 100, Burst: 20}, 10*time.Millisecond), Taken{Remaining: 9 + 5, Next: 10 * time.Millisecond})
	for _, rates := range [][2]Rate{{slow, fast}, {fast, slow}} {
		l := New(10)
		for range 5 {
			is.True(!l.Take(Key{}, rates[0], 0).Refused)
		}
		is.Equal(l.Take(Key{}, rates[1], 0), Taken{Remaining: 4, Next: rates[1].Interval()})
	}
}

// Keys use their own rates, also those of the same id in two tenants.
func TestKeyOf(t *testing.T) {
	is := is.New(t)
	seen := map[Key]bool{}
	for _, id := range []string{"0123456789abcdef", "0123456789abcdeg"} {
		for _, tenant := range []string{"", "a", "b"} {
			is.Equal(KeyOf(tenant, id), KeyOf(tenant, id))
			seen[KeyOf(tenant, id)] = true
		}
	}
	is.Equal(len(seen), 6)
}

// Any Rate is safe to use, also one that somebody wrote into the database.
func TestRatesBeyondTheBounds(t *testing.T) {
	for _, perSecond := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e300, MinPerSecond, MaxPerSecond} {
		for _, burst := range []int{0, -1, 1, MaxBurst, math.MaxInt, math.MinInt} {
			l, r := New(10), Rate{PerSecond: perSecond, Burst: burst}
			now := time.Duration(math.MaxInt64 / 4)
			taken := l.Take(Key{}, r, now)
			for range 3 {
				l.Take(Key{}, r, now)
			}
			if want := max(1, min(burst, MaxBurst)) - 1; taken.Refused || taken.Remaining != want || taken.Next <= 0 {
				t.Errorf("%+v: %+v", r, taken)
			}
		}
	}
}

func numbered(n int) (k Key) {
	binary.BigEndian.PutUint64(k[:], uint64(n))
	return k
}

func (l *Limiter) remembered() (n int) {
	for i := range l.shards {
		n += len(l.shards[i].used)
	}
	return n
}

// A bounded number of keys is remembered, and the used-up ones before others.
func TestManyKeys(t *testing.T) {
	is := is.New(t)
	l, slow := New(1000), Rate{PerSecond: 0.001, Burst: 5}
	for range 5 {
		is.True(!l.Take(Key{}, slow, 0).Refused)
	}
	for n := range 100_000 {
		is.True(!l.Take(numbered(n+1), slow, 0).Refused)
	}
	is.True(l.Take(Key{}, slow, 0).Refused)
	is.True(l.remembered() <= 1000+shards)
	is.True(l.remembered() > 900)
}
