// Package cache keeps copies of what can be had again: a bounded map that readers never wait for, and whose loads are fenced,
// so that a copy that was read before a change is not found after it.
//
// Who reads something to keep it takes a [Fence] first. Who changes something calls Drop or Clear once the change can be read:
// whatever was loaded behind an earlier fence is then gone, also what is put only later.
//
// [Cache] keeps any values. [Records] keeps small ones of a fixed size, in such numbers that pointers to them would keep the garbage
// collector busy.
package cache

import "sync/atomic"

// ways is how many entries share a set: as many pointers as a line of the processor's cache holds, less the set's own fields.
const ways = 7

// Cache is a bounded map. Use [New]. All methods are safe for concurrent use; no value is copied.
type Cache[K comparable, V any] struct {
	hash func(K) uint64
	mask uint64
	era  atomic.Uint32
	sets []set[K, V]

	forgotten atomic.Uint64 // grows when a call of Drop or Clear begins, and when it ends

	loads[K]
}

type set[K comparable, V any] struct {
	version atomic.Uint32 // of its contents: grows with each Drop
	next    atomic.Uint32 // the way that is given up next
	ways    [ways]atomic.Pointer[entry[K, V]]
}

type entry[K comparable, V any] struct {
	Fence
	used  atomic.Bool // since it was last passed over
	key   K
	value V
}

// New returns a Cache of at least capacity entries. hash has to spread keys evenly; its low bits choose where one is kept.
func New[K comparable, V any](capacity int, hash func(K) uint64) *Cache[K, V] {
	sets := 1
	for sets*ways < capacity {
		sets *= 2
	}
	c := &Cache[K, V]{hash: hash, mask: uint64(sets - 1), sets: make([]set[K, V], sets), loads: newLoads[K]()}
	c.forgotten.Store(1)
	return c
}

func (c *Cache[K, V]) set(key K) *set[K, V] { return &c.sets[c.hash(key)&c.mask] }

func (c *Cache[K, V]) fence(s *set[K, V]) Fence { return Fence{c.era.Load(), s.version.Load()} }

// Fence has to be taken before a value for key is loaded.
func (c *Cache[K, V]) Fence(key K) Fence { return c.fence(c.set(key)) }

// Get returns the value that is kept for key. false: none is.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	return c.Find(c.hash(key), func(other *K) bool { return *other == key })
}

// Find is Get for who has the hash of a key and can tell the key: one that is large takes longer to copy than to find.
func (c *Cache[K, V]) Find(hash uint64, is func(key *K) bool) (value V, ok bool) {
	s := &c.sets[hash&c.mask]
	now := c.fence(s)
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && e.Fence == now && is(&e.key) {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e.value, true
		}
	}
	return value, false
}

// Put keeps a value that was loaded behind a fence, unless it has become stale since. Another one may have to go for it.
func (c *Cache[K, V]) Put(fence Fence, key K, value V) {
	s := c.set(key)
	if now := c.fence(s); fence == now {
		s.place(key, now).Store(&entry[K, V]{Fence: fence, key: key, value: value})
	}
}

// place finds the way for a key: its own, one that is free, or the next one that was not used since it was last passed over.
func (s *set[K, V]) place(key K, now Fence) *atomic.Pointer[entry[K, V]] {
	var free *atomic.Pointer[entry[K, V]]
	for i := range s.ways {
		switch e := s.ways[i].Load(); {
		case e != nil && e.key == key:
			return &s.ways[i]
		case e == nil || e.Fence != now:
			free = &s.ways[i]
		}
	}
	for free == nil {
		way := &s.ways[s.next.Add(1)%ways]
		if e := way.Load(); e == nil || !e.used.Swap(false) {
			free = way
		}
	}
	return free
}

// Moment is a fence for whoever learns only from what was loaded which key it belongs to.
type Moment uint64

// Now returns the present moment, which is never 0. What is found after it was taken is as it was found while it lasts, which is until
// a call of Drop or Clear begins, and at most until one that is under way ends.
func (c *Cache[K, V]) Now() Moment { return Moment(c.forgotten.Load()) }

// PutSince keeps a value that was loaded since a moment, unless anything was forgotten since.
func (c *Cache[K, V]) PutSince(moment Moment, key K, value V) {
	if fence := c.Fence(key); c.Now() == moment { // in this order: what is forgotten from now on takes the fence along
		c.Put(fence, key, value)
	}
}

// Drop forgets what is kept for key, and is being loaded. Others may go with it.
func (c *Cache[K, V]) Drop(key K) {
	c.forgotten.Add(1)
	c.set(key).version.Add(1)
	c.forgotten.Add(1)
}

// Clear forgets everything, and whatever is being loaded.
func (c *Cache[K, V]) Clear() {
	c.forgotten.Add(1)
	c.era.Add(1)
	c.forgotten.Add(1)
}
