package cache

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// Words is the size of a [Value].
	Words = 7

	shards = 64
	least  = 16 // the first size of a shard's table
	looks  = 4  // attempts to read a record while a writer writes it
)

// Key names a record.
type Key [2]uint64

func (k Key) hash(seed maphash.Seed) uint64 { return maphash.Comparable(seed, k) }

// Value is the content of a record. A word may refer to something else by a number. The caller must
// never give such a number a second meaning: Records does not check it.
type Value [Words]uint64

// Records is a bounded map of records without pointers. The garbage collector has nothing to scan
// in it, however large it is. Fences, Drop and Clear work as in [Cache]. Put and Drop may wait for
// each other; Get never waits. A full map takes some 110 to 130 bytes a record, a growing one at
// most twice that, an empty one nothing.
//
// Each record has a value and a mark: a number that [Records.Raise] can raise while the record
// stays. Use [NewRecords]. All methods are safe for concurrent use.
type Records struct {
	seed   maphash.Seed
	room   int // records of a shard, at most
	era    atomic.Uint32
	shards [shards]shard

	loads[Key]
}

// shard holds a part of the keys. Its mutex serializes writers.
type shard struct {
	mu      sync.Mutex
	version atomic.Uint32         // grows with each Drop
	table   atomic.Pointer[table] // nil until the first Put
}

// NewRecords returns a map for at least capacity records. capacity is at least 1. The map has spare
// room, because chance gives some shards more keys than others: capacity keys all fit.
func NewRecords(capacity int) *Records {
	mean := float64(capacity) / shards
	return &Records{
		seed:  maphash.MakeSeed(),
		room:  int(math.Ceil(mean + 6*math.Sqrt(mean))),
		loads: newLoads[Key](),
	}
}

func (r *Records) hash(key Key) uint64 { return key.hash(r.seed) }

func (r *Records) shard(hash uint64) *shard { return &r.shards[hash%shards] }

func (r *Records) fence(s *shard) Fence {
	return Fence{stamp: stamp{r.era.Load(), s.version.Load()}}
}

// Fence returns the present fence of a key. Take it before loading the value.
func (r *Records) Fence(key Key) Fence { return r.fence(r.shard(r.hash(key))) }

// Get returns the cached value and mark of a key. It returns false when there is none, or when a
// writer is just writing it.
func (r *Records) Get(key Key) (value Value, mark uint32, ok bool) {
	hash, era := r.hash(key), r.era.Load()
	t := r.shard(hash).table.Load()
	if t == nil || t.era != era {
		return Value{}, 0, false
	}
	for range looks {
		at, sequence := t.find(key, hash)
		if at == 0 {
			break
		}
		if value, mark, ok = t.records[at].read(sequence); ok {
			t.records[at].touch()
			return value, mark, true
		}
	}
	return Value{}, 0, false
}

// Raise raises the mark of a key and reports whether it was lower. Without a cached record it
// reports true.
func (r *Records) Raise(key Key, mark uint32) bool {
	hash := r.hash(key)
	t := r.shard(hash).table.Load()
	if t == nil {
		return true
	}
	at, sequence := t.find(key, hash)
	return at == 0 || t.records[at].raise(sequence, mark)
}

// Put caches a value and its mark that were loaded behind a fence. It does nothing when the fence
// is no longer the present one. It may replace another record.
func (r *Records) Put(fence Fence, key Key, value Value, mark uint32) {
	hash := r.hash(key)
	s := r.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if fence != r.fence(s) {
		return
	}
	t := s.table.Load()
	if t == nil || t.era != fence.era {
		t = newTable(r.seed, fence.era, r.size(0))
		s.table.Store(t)
	}
	if at, _ := t.find(key, hash); at != 0 {
		t.records[at].write(key, value, mark)
		return
	}
	if t.full() && t.room() < r.room {
		t = t.grown(r.size(t.room()))
		s.table.Store(t)
	}
	t.add(key, hash, value, mark)
}

// size returns the size of the table after one of size before: about twice as large, and in the end
// room.
func (r *Records) size(before int) int {
	size := r.room
	for size/2 > max(before, least) {
		size /= 2
	}
	return size
}

// Drop removes the record of a key and refuses loads of it that are under way. It may refuse loads
// of other keys.
func (r *Records) Drop(key Key) {
	hash := r.hash(key)
	s := r.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version.Add(1)
	if t := s.table.Load(); t != nil {
		t.remove(key, hash)
	}
}

// Clear removes all records and refuses all loads that are under way.
func (r *Records) Clear() {
	r.era.Add(1)
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		s.table.Store(nil)
		s.mu.Unlock()
	}
}

// Bytes returns the size of all tables.
func (r *Records) Bytes() (bytes int64) {
	for i := range r.shards {
		if t := r.shards[i].table.Load(); t != nil {
			bytes += recordBytes * int64(len(t.records))
		}
	}
	return bytes
}

// recordBytes is the size of a record and its part of the heads.
const recordBytes = int64(unsafe.Sizeof(record{})) + 2*4
