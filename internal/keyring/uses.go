package keyring

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// MostUses is the most uses that wait. A dropped one is noted in the next minute.
const MostUses = 1 << 16

// Use is a use of a key, and the new hash H that the use has made possible.
type Use[H any] struct {
	ID  string // of the key
	At  time.Time
	New *H // nil: the hash stays
}

// Uses holds uses of keys that are not written yet. Its zero value works. It is safe for concurrent
// use. They are lost when the process is killed: a use is a hint for people, and no
// decision rests on it.
type Uses[H any] struct {
	mu      sync.Mutex
	waiting map[string]Use[H] // by key
}

// Add records a use, unless MostUses others wait. Of two uses of one key, the later time stays.
func (u *Uses[H]) Add(use Use[H]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting == nil {
		u.waiting = map[string]Use[H]{}
	}
	other, there := u.waiting[use.ID]
	if !there && len(u.waiting) >= MostUses {
		return
	}
	if other.At.After(use.At) {
		use.At = other.At
	}
	use.New = cmp.Or(use.New, other.New)
	u.waiting[use.ID] = use
}

// Moves reports whether a new hash for the key already waits, or has no room to wait.
func (u *Uses[H]) Moves(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	use, there := u.waiting[id]
	return use.New != nil || !there && len(u.waiting) >= MostUses
}

// Take empties the list and returns it, in no order. The map keeps its room for the next uses.
func (u *Uses[H]) Take() []Use[H] {
	u.mu.Lock()
	defer u.mu.Unlock()
	uses := slices.Collect(maps.Values(u.waiting))
	clear(u.waiting)
	return uses
}
