// Package cache keeps bounded copies of values that can be loaded again. Readers never wait. Fences
// keep out stale values: after a change, no reader finds a copy that was loaded before it.
//
// To cache a value, take a [Fence] before loading it. After a change, call Drop, DropWhere or Clear
// once readers of the original can see the change. They remove the values that were loaded behind
// an earlier fence, and refuse such a value when it is put later.
//
// [Cache] keeps values of any type. [Records] keeps small values of a fixed size, without pointers:
// so many pointers would keep the garbage collector busy.
package cache

import (
	"reflect"
	"sync/atomic"
)

// ways is the number of entries in a set. Their pointers and the set's own fields fill one line of
// the processor's cache.
const ways = 7

// Cache is a bounded map. Use [New]. All methods are safe for concurrent use. No value is copied.
type Cache[K comparable, V any] struct {
	hash func(K) uint64
	era  atomic.Uint32
	sets Array[set[K, V]]

	sweeps atomic.Uint32 // grows when a call of DropWhere begins

	budget *Budget // nil: only the number of entries is limited
	size   int64   // bytes of an entry's own struct
	// weigh returns the bytes of an entry without its own struct.
	weigh func(key K, value V) (bytes int64, share *Share)
	hand  atomic.Uint32 // the set that giveUp looks at next

	forgotten atomic.Uint64 // grows when a call that drops begins, and when it ends

	loads[K]
}

type set[K comparable, V any] struct {
	version atomic.Uint32 // grows with each Drop
	next    atomic.Uint32 // the way to replace next
	ways    [ways]atomic.Pointer[entry[K, V]]
}

type entry[K comparable, V any] struct {
	stamp
	state atomic.Uint32
	key   K
	value V

	bytes int64
	share *Share
}

// The states of an entry. Readers ignore the first two.
const (
	arriving uint32 = iota // Put has not yet seen that no sweep has missed it
	refused                // a sweep has met it
	idle                   // not used since place or giveUp last passed over it
	used
)

// rest marks a used entry as idle, and reports whether it was used.
func (e *entry[K, V]) rest() bool { return e.state.CompareAndSwap(used, idle) }

// New returns a Cache of at least capacity entries. hash must spread keys evenly; its low bits
// choose the set.
func New[K comparable, V any](capacity int, hash func(K) uint64) *Cache[K, V] {
	sets := 1
	for sets*ways < capacity {
		sets *= 2
	}
	c := &Cache[K, V]{
		hash:  hash,
		sets:  NewArray[set[K, V]](sets),
		loads: newLoads[K](),
	}
	c.forgotten.Store(1)
	return c
}

// NewWithin is New for a cache whose entries count in a budget. weigh returns what an entry takes
// in addition to its own struct. Values too large for the budget are not kept.
func NewWithin[K comparable, V any](
	capacity int,
	hash func(K) uint64,
	budget *Budget,
	weigh func(key K, value V) (bytes int64, share *Share),
) *Cache[K, V] {
	c := New[K, V](capacity, hash)
	c.budget, c.weigh = budget, weigh
	c.size = Allocated(int(reflect.TypeFor[entry[K, V]]().Size()))
	budget.Join(c.giveUp)
	return c
}

// set returns the set of a key. Nil: nobody has taken a fence in it, so it has nothing.
func (c *Cache[K, V]) set(key K) *set[K, V] { return c.sets.Find(c.hash(key)) }

func (c *Cache[K, V]) stamp(s *set[K, V]) stamp { return stamp{c.era.Load(), s.version.Load()} }

func (c *Cache[K, V]) fence(s *set[K, V]) Fence { return Fence{c.stamp(s), c.sweeps.Load()} }

// Fence returns the present fence of a key. Take it before loading the value.
func (c *Cache[K, V]) Fence(key K) Fence { return c.fence(c.sets.Make(c.hash(key))) }

// Get returns the cached value of a key, or false.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	return c.Find(c.hash(key), func(other *K) bool { return *other == key })
}

// Find is Get for a caller that has the hash of a key and can recognize the key. It avoids the copy
// of a large key, which costs more than the search.
func (c *Cache[K, V]) Find(hash uint64, is func(key *K) bool) (value V, ok bool) {
	s := c.sets.Find(hash)
	if s == nil {
		return value, false
	}
	now := c.stamp(s)
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && e.stamp == now && is(&e.key) {
			state := e.state.Load()
			if state == idle {
				e.state.CompareAndSwap(idle, used)
			}
			return e.value, state >= idle
		}
	}
	return value, false
}

// Put caches a value that was loaded behind a fence. It does nothing when the fence is no longer
// the present one. It may replace another entry.
func (c *Cache[K, V]) Put(fence Fence, key K, value V) {
	s := c.set(key)
	if s == nil || fence != c.fence(s) {
		return
	}
	e := &entry[K, V]{stamp: fence.stamp, key: key, value: value}
	if c.budget != nil {
		e.bytes, e.share = c.weigh(key, value)
		if e.bytes += c.size; !c.budget.takes(e.bytes + e.share.Bytes()) {
			return
		}
		c.budget.Hold(e.bytes, e.share)
	}
	place := s.place(key, e.stamp)
	c.release(place.Swap(e))
	// A sweep that began before this may have passed the place already; a later one meets e.
	if fence.sweep != c.sweeps.Load() || !e.state.CompareAndSwap(arriving, idle) {
		c.remove(place, e)
	}
	if c.budget != nil {
		c.budget.Fit()
	}
}

// remove empties the place of an entry, if the entry is still there.
func (c *Cache[K, V]) remove(place *atomic.Pointer[entry[K, V]], e *entry[K, V]) {
	if place.CompareAndSwap(e, nil) {
		c.release(e)
	}
}

// release takes a dropped entry out of the budget. A nil entry is nothing.
func (c *Cache[K, V]) release(e *entry[K, V]) {
	if e != nil && c.budget != nil {
		c.budget.Release(e.bytes, e.share)
	}
}

// giveUp drops from the next sets every entry that is stale or was not used since giveUp last
// passed over it.
func (c *Cache[K, V]) giveUp() {
	for range max(1, c.sets.Len()/parts) {
		s := c.sets.Find(uint64(c.hand.Add(1)))
		if s == nil {
			continue
		}
		now := c.stamp(s)
		for i := range s.ways {
			if e := s.ways[i].Load(); e != nil && (e.stamp != now || !e.rest()) {
				c.remove(&s.ways[i], e)
			}
		}
	}
}

// place returns the way for a key: its own way, a free one, or the next one not used since place
// last passed over it.
func (s *set[K, V]) place(key K, now stamp) *atomic.Pointer[entry[K, V]] {
	var free *atomic.Pointer[entry[K, V]]
	for i := range s.ways {
		switch e := s.ways[i].Load(); {
		case e != nil && e.key == key:
			return &s.ways[i]
		case e == nil || e.stamp != now:
			free = &s.ways[i]
		}
	}
	for free == nil {
		way := &s.ways[s.next.Add(1)%ways]
		if e := way.Load(); e == nil || !e.rest() {
			free = way
		}
	}
	return free
}

// Moment is a fence for a load that finds out its key only when it ends.
type Moment uint64

// Now returns the present moment, which is never 0. Values found after Now stay current until the
// next call that drops begins. When one is under way during Now, they stay current at most until it
// ends.
func (c *Cache[K, V]) Now() Moment { return Moment(c.forgotten.Load()) }

// PutSince caches a value that was loaded since a moment. It does nothing when Drop, DropWhere or
// Clear was called since.
func (c *Cache[K, V]) PutSince(moment Moment, key K, value V) {
	// In this order: a call that drops after the call of Fence makes the fence stale.
	if fence := c.Fence(key); c.Now() == moment {
		c.Put(fence, key, value)
	}
}

// Drop removes the entry of a key and refuses loads of it that are under way. It may remove other
// entries.
func (c *Cache[K, V]) Drop(key K) {
	c.forget(func() {
		if s := c.set(key); s != nil {
			s.version.Add(1)
		}
	})
}

// forget drops entries. No moment before it or within it is the present one afterwards.
func (c *Cache[K, V]) forget(drop func()) {
	c.forgotten.Add(1)
	drop()
	c.forgotten.Add(1)
}

// DropWhere removes the entries that match, and refuses all loads that are under way. It looks at
// every entry. match must be quick, and must not use the cache.
func (c *Cache[K, V]) DropWhere(match func(key *K, value V) bool) {
	c.forget(func() { c.sweep(0, c.sets.Len(), match) })
}

// DropLike is DropWhere for entries whose keys have the hash of key. It looks at few entries.
func (c *Cache[K, V]) DropLike(key K, match func(key *K, value V) bool) {
	c.forget(func() { c.sweep(c.hash(key), 1, match) })
}

// sweep is DropWhere for count sets from one on.
func (c *Cache[K, V]) sweep(from uint64, count int, match func(key *K, value V) bool) {
	c.sweeps.Add(1)
	for i := range uint64(count) {
		s := c.sets.Find(from + i)
		if s == nil {
			continue
		}
		for j := range s.ways {
			e := s.ways[j].Load()
			if e == nil || e.stamp != c.stamp(s) || e.state.CompareAndSwap(arriving, refused) {
				continue
			}
			if match(&e.key, e.value) {
				c.remove(&s.ways[j], e)
			}
		}
	}
}

// Clear removes all entries and refuses all loads that are under way.
func (c *Cache[K, V]) Clear() { c.forget(func() { c.era.Add(1) }) }
