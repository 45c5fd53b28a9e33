package cache

import (
	"hash/maphash"
	"sync/atomic"
)

// table holds the records of a shard in chains. One writer and any number of readers may use it
// concurrently. A reader gets consistent records only. A reader on a chain that changes may end up
// in another chain and find nothing.
type table struct {
	era     uint32
	seed    maphash.Seed
	heads   []atomic.Uint32 // the first record of each chain; 0: empty
	records []record        // records[0] is unused: index 0 ends a chain

	// Only writers use these.
	fresh uint32 // records used so far
	freed uint32 // the chain of free records
	hand  uint32 // the record that place looked at last
}

func newTable(seed maphash.Seed, era uint32, room int) *table {
	return &table{
		era:     era,
		seed:    seed,
		heads:   make([]atomic.Uint32, 2*room),
		records: make([]record, 1+room),
	}
}

func (t *table) room() int { return len(t.records) - 1 }

// full reports whether a new record must replace another.
func (t *table) full() bool { return t.freed == 0 && int(t.fresh) == t.room() }

func (t *table) head(hash uint64) *atomic.Uint32 {
	return &t.heads[hash>>32*uint64(len(t.heads))>>32]
}

// find returns the index of a key's record and its sequence at that time, or index 0.
func (t *table) find(key Key, hash uint64) (at, sequence uint32) {
	at = t.head(hash).Load()
	for range t.records { // the bound stops a reader that changing chains mislead
		if at == 0 {
			break
		}
		r := &t.records[at]
		if sequence = r.sequence.Load(); r.isOf(key) {
			return at, sequence
		}
		at = r.next.Load()
	}
	return 0, 0
}

// add adds a record. The key must not have one.
func (t *table) add(key Key, hash uint64, value Value, mark uint32) {
	at := t.place()
	t.records[at].used.Store(0)
	t.records[at].write(key, value, mark)
	t.link(at, hash)
}

// place returns a record in no chain: a free one, or the next one not used since place last passed
// over it.
func (t *table) place() uint32 {
	switch {
	case t.freed != 0:
		at := t.freed
		t.freed = t.records[at].next.Load()
		return at
	case !t.full():
		t.fresh++
		return t.fresh
	}
	for {
		t.hand = t.hand%uint32(t.room()) + 1
		if r := &t.records[t.hand]; r.used.Swap(0) == 0 {
			t.unlink(t.hand, r.of().hash(t.seed))
			return t.hand
		}
	}
}

func (t *table) link(at uint32, hash uint64) {
	head := t.head(hash)
	t.records[at].next.Store(head.Load())
	head.Store(at)
}

func (t *table) unlink(at uint32, hash uint64) {
	link := t.head(hash)
	for link.Load() != at {
		link = &t.records[link.Load()].next
	}
	link.Store(t.records[at].next.Load())
}

// remove frees the record of a key, if the key has one.
func (t *table) remove(key Key, hash uint64) {
	at, _ := t.find(key, hash)
	if at == 0 {
		return
	}
	t.unlink(at, hash)
	t.records[at].erase()
	t.records[at].next.Store(t.freed)
	t.freed = at
}

// grown returns a larger table with the records of a full one.
func (t *table) grown(room int) *table {
	larger := newTable(t.seed, t.era, room)
	for at := uint32(1); at <= t.fresh; at++ {
		from, to := &t.records[at], &larger.records[at]
		key := from.of()
		value, mark, _ := from.read(from.sequence.Load())
		to.write(key, value, mark)
		larger.link(at, key.hash(t.seed))
	}
	larger.fresh = t.fresh
	return larger
}
