package cache

import (
	"sync"
	"sync/atomic"
)

// Budget limits how many bytes several caches hold together. A value that several entries refer to
// counts once: see [Share].
//
// Over the limit, all caches drop entries not used lately, until a sixteenth of the budget is free.
// Use [NewBudget]. All methods are safe for concurrent use.
type Budget struct {
	most int64
	used atomic.Int64

	mu     sync.Mutex // held by the goroutine that makes room; the others do not wait for it
	caches []func()   // each call drops a part of one cache
	next   int
}

// A cache drops 1/parts of its places at a time.
const parts = 64

// NewBudget returns a budget of most bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Used returns how many bytes the caches hold, by their own estimates.
func (b *Budget) Used() int64 { return b.used.Load() }

// Join adds a cache. Each call of giveUp drops the entries in a sixty-fourth of the cache's places
// that were not used since the last call. Call Join before the cache puts anything.
func (b *Budget) Join(giveUp func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caches = append(b.caches, giveUp)
}

// Empty drops all entries that nobody uses in the meantime.
func (b *Budget) Empty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range 2 * parts { // the first round clears the used marks
		for _, giveUp := range b.caches {
			giveUp()
		}
	}
}

// takes reports whether a value of that size may be put. It refuses a value that would drive out
// too many others.
func (b *Budget) takes(bytes int64) bool { return bytes <= b.most/8 }

// Hold counts an entry that was put, and what it shares with others. A nil share is nothing.
func (b *Budget) Hold(bytes int64, share *Share) {
	b.used.Add(bytes)
	share.hold(b)
}

// Release takes back what Hold counted. The cache calls it when it drops the entry.
func (b *Budget) Release(bytes int64, share *Share) {
	b.used.Add(-bytes)
	share.release(b)
}

// Fit makes room when the caches hold too much. Call it after a put. It may drop the new entry
// again.
func (b *Budget) Fit() {
	if b.used.Load() <= b.most || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	// The first round clears the used marks; the second drops what no reader has used since.
	for range 3 * parts * len(b.caches) {
		if b.used.Load() <= b.most-b.most/16 {
			return
		}
		b.caches[b.next%len(b.caches)]()
		b.next++
	}
}

// Share is memory that several entries refer to. It counts once, while at least one entry has it.
// The nil Share is nothing.
type Share struct {
	bytes   int64
	total   int64 // with the parts
	parts   []*Share
	holders atomic.Int64
}

// NewShare returns a share of so many bytes, plus its parts.
func NewShare(bytes int64, parts ...*Share) *Share {
	s := &Share{bytes: bytes, total: bytes, parts: parts}
	for _, p := range parts {
		s.total += p.Bytes()
	}
	return s
}

// Bytes returns the size of the share, including its parts.
func (s *Share) Bytes() int64 {
	if s == nil {
		return 0
	}
	return s.total
}

func (s *Share) hold(b *Budget) {
	if s == nil || s.holders.Add(1) > 1 {
		return
	}
	b.used.Add(s.bytes)
	for _, p := range s.parts {
		p.hold(b)
	}
}

func (s *Share) release(b *Budget) {
	if s == nil || s.holders.Add(-1) > 0 {
		return
	}
	b.used.Add(-s.bytes)
	for _, p := range s.parts {
		p.release(b)
	}
}
