package cache

import (
	"sync"
	"sync/atomic"
)

// Budget bounds how many bytes several caches hold together. A value that several entries refer to counts once: see [Share]. When there is too
// much, all of the caches give up what was not used lately, until a sixteenth is free. Use [NewBudget]. It is safe for concurrent use.
type Budget struct {
	most int64
	used atomic.Int64

	mu     sync.Mutex // of the goroutine that makes room: the others go on
	caches []func()   // each gives up a part of what a cache holds
	next   int
}

// parts is in how many parts a cache gives up what it holds.
const parts = 64

// NewBudget returns a budget of so many bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Used returns how many bytes are held, by the estimates of those who put them.
func (b *Budget) Used() int64 { return b.used.Load() }

// Join adds a cache, which gives up a sixty-fourth of its places each time: those that were not used since the last time. It is
// called before anything is put.
func (b *Budget) Join(giveUp func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caches = append(b.caches, giveUp)
}

// Takes reports whether something of that size may be put: nothing large drives out all the rest.
func (b *Budget) Takes(bytes int64) bool { return bytes <= b.most/8 }

// Hold counts an entry that was put, and what it shares with others; nil: nothing.
func (b *Budget) Hold(bytes int64, share *Share) {
	b.used.Add(bytes)
	share.hold(b)
}

// Release is called when an entry goes that was put.
func (b *Budget) Release(bytes int64, share *Share) {
	b.used.Add(-bytes)
	share.release(b)
}

// Fit makes room where there is too much. It is called after something was put, and may take that again.
func (b *Budget) Fit() {
	if b.used.Load() <= b.most || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	for range 3 * parts * len(b.caches) { // the second time round all is unused that nobody has asked for meanwhile
		if b.used.Load() <= b.most-b.most/16 {
			return
		}
		b.caches[b.next%len(b.caches)]()
		b.next++
	}
}

// Share is something that entries may have in common. It counts while at least one has it. The nil Share is nothing.
type Share struct {
	bytes   int64
	total   int64 // with the parts
	parts   []*Share
	holders atomic.Int64
}

// NewShare returns a share of so many bytes, beside its parts.
func NewShare(bytes int64, parts ...*Share) *Share {
	s := &Share{bytes: bytes, total: bytes, parts: parts}
	for _, p := range parts {
		s.total += p.Bytes()
	}
	return s
}

// Bytes returns how many bytes it is, its parts included.
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
