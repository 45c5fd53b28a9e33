package policy

import (
	"reflect"
	"sync/atomic"

	"github.com/extsvc/svc/internal/cache"
)

// slots cache results that never change, in a limited number of places. A new result may replace an
// older one, which must then be computed again.
type slots[T any] struct {
	lines  cache.Array[line[T]]
	budget *cache.Budget
	shares func(*T) (one, other *cache.Share) // of a cached value
	size   int64                              // bytes of one value
	hand   atomic.Uint64                      // the slot that giveUp empties next
}

// line is as many slots as fill a line of the processor's cache.
type line[T any] [lineLength]atomic.Pointer[T]

const lineLength = 8

// newSlots returns size slots, a power of two. They count in a budget, each with extra bytes and
// the memory that it shares with others.
func newSlots[T any](
	size int,
	budget *cache.Budget,
	extra int,
	shares func(*T) (one, other *cache.Share),
) *slots[T] {
	s := &slots[T]{
		lines: cache.NewArray[line[T]](size / lineLength), budget: budget,
		shares: shares, size: cache.Allocated(extra + int(reflect.TypeFor[T]().Size())),
	}
	budget.Join(s.giveUp)
	return s
}

// giveUp empties the next slots.
func (s *slots[T]) giveUp() {
	for range max(1, s.lines.Len()*lineLength/64) {
		if slot := s.find(s.hand.Add(1)); slot != nil {
			s.release(slot.Swap(nil))
		}
	}
}

func (s *slots[T]) hold(v *T) {
	one, other := s.shares(v)
	s.budget.Hold(s.size, one)
	s.budget.Hold(0, other)
}

// release takes a dropped value out of the budget. A nil value is nothing.
func (s *slots[T]) release(v *T) {
	if v != nil {
		one, other := s.shares(v)
		s.budget.Release(s.size, one)
		s.budget.Release(0, other)
	}
}

// find returns a slot. Nil: it has never had a value.
func (s *slots[T]) find(at uint64) *atomic.Pointer[T] {
	line := s.lines.Find(at / lineLength)
	if line == nil {
		return nil
	}
	return &line[at%lineLength]
}

// first and second return what is in the two slots for a hash, or nil.
func (s *slots[T]) first(hash uint64) *T  { return s.load(hash) }
func (s *slots[T]) second(hash uint64) *T { return s.load(hash >> 32) }

func (s *slots[T]) load(at uint64) *T {
	if slot := s.find(at); slot != nil {
		return slot.Load()
	}
	return nil
}

func (s *slots[T]) make(at uint64) *atomic.Pointer[T] {
	return &s.lines.Make(at / lineLength)[at%lineLength]
}

func (s *slots[T]) put(hash uint64, v *T) {
	place, other := s.make(hash), s.make(hash>>32)
	if place.Load() != nil && (other.Load() == nil || hash>>63 == 0) {
		place = other
	}
	s.hold(v)
	s.release(place.Swap(v))
	s.budget.Fit()
}

// memo caches values by key.
type memo[K comparable, V any] struct{ *slots[memoEntry[K, V]] }

type memoEntry[K comparable, V any] struct {
	key   K
	value *V
}

// newMemo returns a memo for size values in a budget. size is a power of two.
func newMemo[K comparable, V any](
	size int,
	budget *cache.Budget,
	share func(K, *V) *cache.Share,
) *memo[K, V] {
	shares := func(e *memoEntry[K, V]) (one, other *cache.Share) {
		return share(e.key, e.value), nil
	}
	return &memo[K, V]{newSlots(size, budget, 0, shares)}
}

func (m *memo[K, V]) get(hash uint64, key K) *V {
	if e := m.first(hash); e != nil && e.key == key {
		return e.value
	}
	if e := m.second(hash); e != nil && e.key == key {
		return e.value
	}
	return nil
}

func (m *memo[K, V]) put(hash uint64, key K, v *V) {
	m.slots.put(hash, &memoEntry[K, V]{key, v})
}

// Odd factors that spread a number over all bits of the product.
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

func (c cell) hash() uint64 {
	return (c.table*odd1 ^ uint64(c.action)*odd2 ^ uint64(c.bank)) * odd3
}

// answer is the verdict on one request to a table. It has its own copy of the request's strings,
// joined. The caller's strings may be parts of something large, and two places in memory take
// longer to compare.
type answer struct {
	table   uint64
	action  int    // the length of the action
	text    string // action and bank
	verdict *verdict
	policy  *Bank  // the policy of the bank that Note stored
	moment  uint64 // the moment that Note stored; 0: none
}

func newAnswer(table uint64, action, bank string, v *verdict) *answer {
	return &answer{table: table, action: len(action), text: action + bank, verdict: v}
}

func (a *answer) to(table uint64, action, bank string) bool {
	return a != nil && a.table == table &&
		a.action == len(action) && len(a.text) == len(action)+len(bank) &&
		a.text[:len(action)] == action && a.text[len(action):] == bank
}

// answers caches answers.
type answers struct{ *slots[answer] }

// newAnswers returns room for size answers. size is a power of two.
func newAnswers(size int, budget *cache.Budget) *answers {
	shares := func(a *answer) (one, other *cache.Share) { return a.verdict.share, a.policy.Share() }
	return &answers{newSlots(size, budget, keptLength, shares)}
}

func (m *answers) get(hash, table uint64, action, bank string) *answer {
	a := m.first(hash)
	if !a.to(table, action, bank) {
		if a = m.second(hash); !a.to(table, action, bank) {
			return nil
		}
	}
	return a
}

// replace replaces an answer to the same request, if it is still cached.
func (m *answers) replace(hash uint64, old, by *answer) {
	m.hold(by)
	if m.make(hash).CompareAndSwap(old, by) || m.make(hash>>32).CompareAndSwap(old, by) {
		m.release(old)
	} else {
		m.release(by)
	}
	m.budget.Fit()
}
