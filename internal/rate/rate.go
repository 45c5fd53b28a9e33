// Package rate limits how often something is used, each key by its own rate. It keeps its state in
// memory, within a bound.
package rate

import (
	"crypto/sha256"
	"hash/maphash"
	"sync"
	"time"
)

// Rate allows Burst uses at the same time, and PerSecond uses a second in the long run.
type Rate struct {
	PerSecond float64
	Burst     int
}

// The bounds of a Rate, with Burst at least 1. A Limiter takes a Rate beyond them as Bounded.
const (
	MinPerSecond = 0.0001
	MaxPerSecond = 100_000
	MaxBurst     = 100_000
)

// Bounded returns the nearest Rate within the bounds.
func (r Rate) Bounded() Rate {
	if !(r.PerSecond >= MinPerSecond) { // also NaN
		r.PerSecond = MinPerSecond
	}
	return Rate{min(r.PerSecond, MaxPerSecond), max(1, min(r.Burst, MaxBurst))}
}

// Interval returns the time after which a use is available again, rounded to nanoseconds.
func (r Rate) Interval() time.Duration {
	return time.Duration(float64(time.Second)/r.PerSecond + 0.5)
}

// Left returns the outcome of a use of a key that then is unused after wait. r
// is within the bounds.
func (r Rate) Left(refused bool, wait time.Duration) Taken {
	interval := r.Interval()
	most := time.Duration(r.Burst) * interval
	left := (most - wait) / interval
	return Taken{
		Refused: refused, Remaining: int(left), Next: wait + (left+1)*interval - most,
	}
}

// Key names what is limited.
type Key [16]byte

// KeyOf returns the Key of an API key by its id. Tenants may have keys of the same id: copies of
// one database. The tenant "" is none.
func KeyOf(tenant, id string) (key Key) {
	if tenant == "" {
		copy(key[:], id)
		return key
	}
	sum := sha256.Sum256([]byte(tenant + "/" + id))
	copy(key[:], sum[:])
	return key
}

// Taken is the outcome of a use.
type Taken struct {
	Refused   bool          // the rate does not allow the use
	Remaining int           // uses that the rate still allows at the same time
	Next      time.Duration // until one more than Remaining is allowed; > 0
}

// Limiter counts uses of keys. Use [New]. It is safe for concurrent use: of any uses at the same
// time, it allows exactly as many as one after the other.
//
// It remembers a bounded number of keys. Beyond that, a new key takes the place of one of a few
// keys chosen at random: the one that is unused first. That key starts over with its whole burst.
// So a key keeps its state as long as most others have less to wait for.
type Limiter struct {
	seed   maphash.Seed
	room   int // keys of a shard
	shards [shards]shard
}

const (
	shards = 64
	sample = 8 // keys among which one makes room
)

// shard holds the state of a part of the keys.
type shard struct {
	mu   sync.Mutex
	used map[Key]used
}

// used is what a key has used, as a time: it is unused at the time until. Each use has moved that
// time by interval. (This is the generic cell rate algorithm, ITU-T I.371.)
type used struct{ until, interval time.Duration }

// New returns a Limiter that remembers about so many keys; at least 1.
func New(keys int) *Limiter {
	return &Limiter{seed: maphash.MakeSeed(), room: (keys + shards - 1) / shards}
}

// Take uses a key once, unless its rate does not allow it. A refused use does not count. now is a
// time of any origin; it does not go back.
//
// When the rate of a key changes, its uses so far count for the new rate, up to the new Burst.
func (l *Limiter) Take(key Key, rate Rate, now time.Duration) Taken {
	rate = rate.Bounded()
	interval, burst := rate.Interval(), time.Duration(rate.Burst)
	s := &l.shards[maphash.Comparable(l.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	before, there := s.used[key]
	wait, most := before.at(now, interval, burst), burst*interval
	refused := wait+interval > most
	if !refused {
		wait += interval
	}
	if !there {
		s.makeRoom(l.room)
	}
	s.used[key] = used{until: now + wait, interval: interval}
	return rate.Left(refused, wait)
}

// at returns how long the key still counts as used at a time, by its own rate or by a new one.
func (u used) at(now, interval, burst time.Duration) time.Duration {
	wait := u.until - now
	if u.interval == 0 || wait <= 0 {
		return 0
	}
	if u.interval != interval {
		wait = time.Duration(float64(wait) / float64(u.interval) * float64(interval))
	}
	return min(wait, burst*interval)
}

// makeRoom removes a key if there are as many as allowed. Maps are ranged over in random order.
func (s *shard) makeRoom(most int) {
	if s.used == nil {
		s.used = map[Key]used{}
	}
	if len(s.used) < most {
		return
	}
	var first Key
	seen := 0
	for key, u := range s.used {
		if seen == 0 || u.until < s.used[first].until {
			first = key
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(s.used, first)
}
