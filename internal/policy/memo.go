package policy

import (
	"reflect"
	"sync/atomic"

	"github.com/extsvc/svc/internal/cache"
)

// slots are where what was found once, and never changes, is remembered. There is a bounded number of them: something new may take
// that of something older, which has to be found again.
type slots[T any] struct {
	all    []atomic.Pointer[T]
	mask   uint64
	budget *cache.Budget                      // nil: their number is all that bounds them
	shares func(*T) (one, other *cache.Share) // of what is remembered
	size   int64                              // of one
	hand   atomic.Uint64                      // the slot that is given up next
}

// newSlots returns size of them, which is a power of two.
func newSlots[T any](size int) *slots[T] {
	return &slots[T]{all: make([]atomic.Pointer[T], size), mask: uint64(size - 1)}
}

// within has them count in a budget, with what they share with others.
func (s *slots[T]) within(budget *cache.Budget, size int, shares func(*T) (one, other *cache.Share)) *slots[T] {
	s.budget, s.shares, s.size = budget, shares, cache.Allocated(size+int(reflect.TypeFor[T]().Size()))
	budget.Join(s.giveUp)
	return s
}

// giveUp empties the next slots.
func (s *slots[T]) giveUp() {
	for range max(1, len(s.all)/64) {
		s.left(s.all[s.hand.Add(1)&s.mask].Swap(nil))
	}
}

func (s *slots[T]) entered(v *T) {
	if s.budget != nil {
		one, other := s.shares(v)
		s.budget.Hold(s.size, one)
		s.budget.Hold(0, other)
	}
}

func (s *slots[T]) fit() {
	if s.budget != nil {
		s.budget.Fit()
	}
}

// left is called with what is not remembered any more; nil: nothing was.
func (s *slots[T]) left(v *T) {
	if v != nil && s.budget != nil {
		one, other := s.shares(v)
		s.budget.Release(s.size, one)
		s.budget.Release(0, other)
	}
}

// first and second return the two slots where something with that hash may be.
func (s *slots[T]) first(hash uint64) *atomic.Pointer[T]  { return &s.all[hash&s.mask] }
func (s *slots[T]) second(hash uint64) *atomic.Pointer[T] { return &s.all[hash>>32&s.mask] }

func (s *slots[T]) put(hash uint64, v *T) {
	place, other := s.first(hash), s.second(hash)
	if place.Load() != nil && (other.Load() == nil || hash>>63 == 0) {
		place = other
	}
	s.entered(v)
	s.left(place.Swap(v))
	s.fit()
}

// memo remembers values by their keys.
type memo[K comparable, V any] struct{ *slots[remembered[K, V]] }

type remembered[K comparable, V any] struct {
	key   K
	value *V
}

// newMemo returns a memo for size values, which is a power of two, in a budget; nil: their number is all that bounds them.
func newMemo[K comparable, V any](size int, budget *cache.Budget, share func(K, *V) *cache.Share) *memo[K, V] {
	m := &memo[K, V]{newSlots[remembered[K, V]](size)}
	if budget != nil {
		m.within(budget, 0, func(r *remembered[K, V]) (one, other *cache.Share) { return share(r.key, r.value), nil })
	}
	return m
}

func (m *memo[K, V]) get(hash uint64, key K) *V {
	if r := m.first(hash).Load(); r != nil && r.key == key {
		return r.value
	}
	if r := m.second(hash).Load(); r != nil && r.key == key {
		return r.value
	}
	return nil
}

func (m *memo[K, V]) put(hash uint64, key K, v *V) {
	m.slots.put(hash, &remembered[K, V]{key, v})
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
	policy  *Bank  // the bank's, as it was noted
	moment  uint64 // when it was noted; 0: it was not
}

func newAnswer(table uint64, action, bank string, v *verdict) *answer {
	return &answer{table: table, action: len(action), text: action + bank, verdict: v}
}

func (a *answer) to(table uint64, action, bank string) bool {
	return a != nil && a.table == table && a.action == len(action) && len(a.text) == len(action)+len(bank) &&
		a.text[:len(action)] == action && a.text[len(action):] == bank
}

// answers remembers answers.
type answers struct{ *slots[answer] }

// newAnswers has room for size answers, which is a power of two.
func newAnswers(size int, budget *cache.Budget) *answers {
	return &answers{newSlots[answer](size).within(budget, keptLength, func(a *answer) (one, other *cache.Share) {
		return a.verdict.share, a.policy.Share()
	})}
}

func (m *answers) get(hash, table uint64, action, bank string) *answer {
	a := m.first(hash).Load()
	if !a.to(table, action, bank) {
		if a = m.second(hash).Load(); !a.to(table, action, bank) {
			return nil
		}
	}
	return a
}

// replace puts an answer where another one to the same request is, if it is still there.
func (m *answers) replace(hash uint64, old, by *answer) {
	m.entered(by)
	if m.first(hash).CompareAndSwap(old, by) || m.second(hash).CompareAndSwap(old, by) {
		m.left(old)
	} else {
		m.left(by)
	}
	m.fit()
}
