package cache

import "sync/atomic"

// record is a record of a table. Its sequence is odd while it is written, or free, and another one afterwards: who has read the same
// even one before all else and behind it has read what belongs together.
type record struct {
	sequence atomic.Uint32
	next     atomic.Uint32 // of its chain
	used     atomic.Uint32 // 1: since it was last passed over
	mark     atomic.Uint64 // the sequence that it belongs to, and the mark
	key      [len(Key{})]atomic.Uint64
	value    [Words]atomic.Uint64
}

func (r *record) isOf(key Key) bool { return r.key[0].Load() == key[0] && r.key[1].Load() == key[1] }

// of returns the key, for whoever writes.
func (r *record) of() Key { return Key{r.key[0].Load(), r.key[1].Load()} }

// read returns what the record says if it was of the key that it was found by, at that sequence, and is still.
func (r *record) read(sequence uint32) (value Value, mark uint32, ok bool) {
	for i := range value {
		value[i] = r.value[i].Load()
	}
	mark = uint32(r.mark.Load())
	return value, mark, sequence%2 == 0 && r.sequence.Load() == sequence
}

// touch notes that the record was used. It may be another key's by now, which then stays a little longer.
func (r *record) touch() {
	if r.used.Load() == 0 {
		r.used.Store(1)
	}
}

// raise raises the mark of the record that was found at a sequence, and reports whether it was lower. When the record has become
// another key's since, nothing is raised: the mark, which is written first, belongs to another sequence then.
func (r *record) raise(sequence, mark uint32) bool {
	for {
		was := r.mark.Load()
		if uint32(was>>32) != sequence {
			return true
		}
		if uint32(was) >= mark {
			return false
		}
		if r.mark.CompareAndSwap(was, marked(sequence, mark)) {
			return true
		}
	}
}

func marked(sequence, mark uint32) uint64 { return uint64(sequence)<<32 | uint64(mark) }

func (r *record) write(key Key, value Value, mark uint32) {
	writing := r.begin()
	r.mark.Store(marked(writing+1, mark))
	r.set(key, value)
	r.sequence.Store(writing + 1)
}

// erase leaves the record as one that is being written.
func (r *record) erase() {
	r.begin()
	r.mark.Store(0)
	r.set(Key{}, Value{})
}

func (r *record) begin() (writing uint32) {
	writing = r.sequence.Load() | 1
	r.sequence.Store(writing)
	return writing
}

func (r *record) set(key Key, value Value) {
	for i := range key {
		r.key[i].Store(key[i])
	}
	for i := range value {
		r.value[i].Store(value[i])
	}
}
