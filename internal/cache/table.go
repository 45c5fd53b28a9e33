package cache

import (
	"hash/maphash"
	"sync/atomic"
)

// table is the records of a shard, in chains. Any number may read it while one writes; what a reader finds is whole, but whoever follows
// a chain that is being changed may be led into another one, and find nothing.
type table struct {
	era     uint32
	seed    maphash.Seed
	heads   []atomic.Uint32 // where each chain begins; 0: it is empty
	records []record        // the first is never used: 0 is the end of a chain

	// For whoever writes.
	fresh uint32 // records that were in use at some time
	freed uint32 // the chain of those that are not any more
	hand  uint32 // the record that was looked at last, to be given up
}

func newTable(seed maphash.Seed, era uint32, room int) *table {
	return &table{era: era, seed: seed, heads: make([]atomic.Uint32, 2*room), records: make([]record, 1+room)}
}

func (t *table) room() int { return len(t.records) - 1 }

// full reports whether something has to go for a new record.
func (t *table) full() bool { return t.freed == 0 && int(t.fresh) == t.room() }

func (t *table) head(hash uint64) *atomic.Uint32 { return &t.heads[hash>>32*uint64(len(t.heads))>>32] }

// find returns where the record of a key is, and the sequence that it had then; 0: nowhere.
func (t *table) find(key Key, hash uint64) (at, sequence uint32) {
	at = t.head(hash).Load()
	for range t.records { // who is led astray does not walk forever
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

// add adds a record for a key that has none.
func (t *table) add(key Key, hash uint64, value Value, mark uint32) {
	at := t.place()
	t.records[at].used.Store(0)
	t.records[at].write(key, value, mark)
	t.link(at, hash)
}

// place finds a record that is in no chain: one that is free, or the next one that was not used since it was last passed over.
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

// remove frees the record of a key, if there is one.
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
		to.used.Store(from.used.Load())
		larger.link(at, key.hash(t.seed))
	}
	larger.fresh = t.fresh
	return larger
}
