package cache

import "sync/atomic"

// record is one record of a table. Its sequence is odd while the record is free or a writer writes
// it; each write ends with a new even number. A read is consistent when it loads the same even
// sequence before and after all fields.
type record struct {
	sequence atomic.Uint32
	next     atomic.Uint32 // the next record of the chain
	used     atomic.Uint32 // 1: used since place last passed over it
	mark     atomic.Uint64 // a sequence in the high half, the mark in the low half
	key      [len(Key{})]atomic.Uint64
	value    [Words]atomic.Uint64
}

func (r *record) isOf(key Key) bool {
	return r.key[0].Load() == key[0] && r.key[1].Load() == key[1]
}

// of returns the key. Only a writer may call it.
func (r *record) of() Key { return Key{r.key[0].Load(), r.key[1].Load()} }

// read returns the value and mark. ok is false unless the record still has the sequence that find
// returned.
func (r *record) read(sequence uint32) (value Value, mark uint32, ok bool) {
	for i := range value {
		value[i] = r.value[i].Load()
	}
	mark = uint32(r.mark.Load())
	return value, mark, sequence%2 == 0 && r.sequence.Load() == sequence
}

// touch marks the record as used. If the record now has another key, that key stays a little
// longer.
func (r *record) touch() {
	if r.used.Load() == 0 {
		r.used.Store(1)
	}
}

// raise raises the mark of a record found at a sequence, and reports whether the mark was lower. A
// record that has another key since is not changed: a writer stores the mark first, with a new
// sequence.
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

// erase clears the record and leaves its sequence odd.
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
