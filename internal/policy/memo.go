package policy

import "sync/atomic"

// memo remembers what was found once, and never changes, in a place that is bounded: a new one may take that of an older one,
// which has to be found again.
type memo[K comparable, V any] struct {
	slots []atomic.Pointer[remembered[K, V]]
	mask  uint64
}

type remembered[K comparable, V any] struct {
	key   K
	value *V
}

// newMemo returns a memo for size values, which is a power of two.
func newMemo[K comparable, V any](size int) *memo[K, V] {
	return &memo[K, V]{slots: make([]atomic.Pointer[remembered[K, V]], size), mask: uint64(size - 1)}
}

// places returns the two slots where a key with that hash may be.
func (m *memo[K, V]) places(hash uint64) (a, b *atomic.Pointer[remembered[K, V]]) {
	return &m.slots[hash&m.mask], &m.slots[hash>>32&m.mask]
}

func (m *memo[K, V]) get(hash uint64, key K) *V {
	a, b := m.places(hash)
	if r := a.Load(); r != nil && r.key == key {
		return r.value
	}
	if r := b.Load(); r != nil && r.key == key {
		return r.value
	}
	return nil
}

func (m *memo[K, V]) put(hash uint64, key K, v *V) {
	place, other := m.places(hash)
	if place.Load() != nil && (other.Load() == nil || hash>>63 == 0) {
		place = other
	}
	place.Store(&remembered[K, V]{key, v})
}

// Odd numbers that spread what is multiplied with them over all bits.
const (
	odd1 = 0x9E3779B97F4A7C15
	odd2 = 0xC2B2AE3D27D4EB4F
	odd3 = 0x165667B19E3779F9
)

// cell is one class of requests to a table.
type cell struct {
	table        uint64
	action, bank int32
}

func (c cell) hash() uint64 { return (c.table*odd1 ^ uint64(c.action)*odd2 ^ uint64(c.bank)) * odd3 }

// answer is the verdict on one request to a table. It has a copy of the request's strings, in one piece: theirs may be parts of
// something large, and two places in memory take longer to look at.
type answer struct {
	table   uint64
	action  int    // its length
	text    string // action and bank
	verdict *verdict
}

func newAnswer(table uint64, action, bank string, v *verdict) *answer {
	return &answer{table, len(action), action + bank, v}
}

func (a *answer) to(table uint64, action, bank string) bool {
	return a != nil && a.table == table && a.action == len(action) && len(a.text) == len(action)+len(bank) &&
		a.text[:len(action)] == action && a.text[len(action):] == bank
}

// answers remembers answers as memo does verdicts.
type answers struct {
	slots []atomic.Pointer[answer]
	mask  uint64
}

func (m *answers) get(hash, table uint64, action, bank string) *verdict {
	a := m.slots[hash&m.mask].Load()
	if !a.to(table, action, bank) {
		if a = m.slots[hash>>32&m.mask].Load(); !a.to(table, action, bank) {
			return nil
		}
	}
	return a.verdict
}

func (m *answers) put(hash uint64, a *answer) {
	place, other := &m.slots[hash&m.mask], &m.slots[hash>>32&m.mask]
	if place.Load() != nil && (other.Load() == nil || hash>>63 == 0) {
		place = other
	}
	place.Store(a)
}
