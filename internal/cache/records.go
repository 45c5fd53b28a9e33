package cache

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
)

const (
	// Words is the size of a [Value].
	Words = 7

	shards = 64
	least  = 16 // records that a shard has room for at first
	looks  = 4  // at a record that is being written
)

// Key names a record.
type Key [2]uint64

func (k Key) hash(seed maphash.Seed) uint64 { return maphash.Comparable(seed, k) }

// Value is what a record says. Where words refer to something else, that has to be numbered so that no number ever comes to mean
// something different: Records knows nothing of it.
type Value [Words]uint64

// Records is a bounded map of records without pointers, in which the garbage collector has nothing to look at, however many there are.
// Its discipline is that of [Cache]; who puts and drops may wait for others who do, but who reads never waits. It takes some 110 to 130
// bytes a record when it is full, at most twice that before, and nothing until something is put.
//
// Beside its value a record has a mark, a number that is raised while the record stays. Use [NewRecords]. All methods are safe for
// concurrent use.
type Records struct {
	seed   maphash.Seed
	room   int // records of a shard, at most
	era    atomic.Uint32
	shards [shards]shard

	loads[Key]
}

// shard is a part of the keys, and those who write its records.
type shard struct {
	mu      sync.Mutex
	version atomic.Uint32         // grows with each Drop
	table   atomic.Pointer[table] // nil: nothing was put
}

// NewRecords returns a map of at least capacity records, at least 1: of so many more that all of as many keys have room, though chance
// gives one shard more of them than another.
func NewRecords(capacity int) *Records {
	mean := float64(capacity) / shards
	return &Records{seed: maphash.MakeSeed(), room: int(math.Ceil(mean + 6*math.Sqrt(mean))), loads: newLoads[Key]()}
}

func (r *Records) hash(key Key) uint64 { return key.hash(r.seed) }

func (r *Records) shard(hash uint64) *shard { return &r.shards[hash%shards] }

func (r *Records) fence(s *shard) Fence { return Fence{r.era.Load(), s.version.Load()} }

// Fence has to be taken before a value for key is loaded.
func (r *Records) Fence(key Key) Fence { return r.fence(r.shard(r.hash(key))) }

// Get returns the value and the mark that are kept for key. false: none are, or they are just being written.
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

// Raise raises the mark that is kept for key, and reports whether it was lower. It reports so, too, when nothing is kept.
func (r *Records) Raise(key Key, mark uint32) bool {
	hash := r.hash(key)
	t := r.shard(hash).table.Load()
	if t == nil {
		return true
	}
	at, sequence := t.find(key, hash)
	return at == 0 || t.records[at].raise(sequence, mark)
}

// Put keeps a value and its mark that were loaded behind a fence, unless they have become stale since. Another one may have to go for
// it.
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

// size is that of the table which follows one of a size: twice as much, the last one having all the room.
func (r *Records) size(before int) int {
	size := r.room
	for size/2 > max(before, least) {
		size /= 2
	}
	return size
}

// Drop forgets what is kept for key, and is being loaded. What is being loaded for others may go with it.
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

// Clear forgets everything, and whatever is being loaded.
func (r *Records) Clear() { r.era.Add(1) }
