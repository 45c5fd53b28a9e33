// Package shelf keeps one list of rows in memory, indexed, within so many bytes. A list is replaced
// as a whole, never changed.
package shelf

import (
	"iter"
	"slices"
	"sort"
	"sync/atomic"
)

// Label is a property that many rows may have, such as a tag.
type Label struct{ Field, Text string }

// Rows says how a List reads its rows.
type Rows[T any] struct {
	ID      func(row *T) string  // unique in a list
	Labels  func(row *T) []Label // a label may appear twice
	Size    func(row *T) int64   // in bytes
	Compare func(a, b *T) int    // the order of a list
}

// List holds rows in their order. It is safe for concurrent use. The caller must not change a row
// that it has put into the list or got from it.
type List[T any] struct {
	of       *Rows[T]
	rows     []T
	byID     map[string]int32
	all      []int32 // the numbers of all rows; lists of numbers are in ascending order
	labelled map[Label][]int32

	whole []atomic.Pointer[T] // see Complete
	room  atomic.Int64        // bytes left
}

// Read returns a list of rows, which come in the order of the list. When they need more than room
// bytes, Read stops reading and returns nil. An error of rows is returned as it is.
func Read[T any](of *Rows[T], room int64, rows iter.Seq2[T, error]) (*List[T], error) {
	l := &List[T]{of: of, byID: map[string]int32{}, labelled: map[Label][]int32{}}
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		l.rows = append(l.rows, row)
		if room -= of.Size(&l.rows[len(l.rows)-1]); room < 0 {
			return nil, nil
		}
	}
	l.room.Store(room)
	l.rows = slices.Clip(l.rows)
	l.all, l.whole = make([]int32, len(l.rows)), make([]atomic.Pointer[T], len(l.rows))
	for i := range l.rows {
		l.index(int32(i))
	}
	return l, nil
}

func (l *List[T]) index(number int32) {
	row := &l.rows[number]
	l.all[number], l.byID[l.of.ID(row)] = number, number
	for _, label := range l.of.Labels(row) {
		numbers := l.labelled[label]
		if n := len(numbers); n == 0 || numbers[n-1] != number {
			l.labelled[label] = append(numbers, number)
		}
	}
}

// Row returns the row with an id, as it was listed. Nil: the list has no such row.
func (l *List[T]) Row(id string) *T {
	if number, found := l.byID[id]; found {
		return &l.rows[number]
	}
	return nil
}

// Whole returns the whole row with an id. Nil: Complete has not kept it.
func (l *List[T]) Whole(id string) *T {
	if number, found := l.byID[id]; found {
		return l.whole[number].Load()
	}
	return nil
}

// Complete keeps the whole of a row that was listed with a part of its fields. It needs so many
// bytes more. It is not kept when there is no room, or when the list has no row with its id.
func (l *List[T]) Complete(row *T, bytes int64) {
	number, found := l.byID[l.of.ID(row)]
	if !found {
		return
	}
	if l.room.Add(-bytes) < 0 || !l.whole[number].CompareAndSwap(nil, row) {
		l.room.Add(bytes)
	}
}

// Query asks for a part of a list. The zero Query asks for all rows.
type Query[T any] struct {
	Labels []Label // a row must have all of them
	After  *T      // the part starts after this row, which need not be in the list; nil: at the start
	Skip   int     // the number of matching rows to leave out first
	Limit  int     // the most rows; 0: all
}

// Part yields the rows that a query asks for.
func (l *List[T]) Part(q Query[T]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		numbers, others := l.candidates(q)
		skip, left := q.Skip, q.Limit
		if len(others) == 0 {
			numbers, skip = numbers[min(skip, len(numbers)):], 0
		}
		for _, number := range numbers {
			if !inAll(others, number) {
				continue
			}
			if skip--; skip >= 0 {
				continue
			}
			if left--; !yield(&l.rows[number]) || left == 0 {
				return
			}
		}
	}
}

// candidates returns the numbers of few rows after q.After, in ascending order. Such a row matches
// the query when its number is in all others.
func (l *List[T]) candidates(q Query[T]) (numbers []int32, others [][]int32) {
	for _, label := range q.Labels {
		others = append(others, l.labelled[label])
	}
	if len(others) == 0 {
		others = [][]int32{l.all}
	}
	slices.SortFunc(others, func(a, b []int32) int { return len(a) - len(b) })
	numbers, others = others[0], others[1:]
	if q.After != nil {
		first := sort.Search(len(l.rows), func(i int) bool {
			return l.of.Compare(&l.rows[i], q.After) > 0
		})
		from, _ := slices.BinarySearch(numbers, int32(first))
		numbers = numbers[from:]
	}
	return numbers, others
}

// inAll reports whether all lists have a number.
func inAll(lists [][]int32, number int32) bool {
	for _, list := range lists {
		if _, found := slices.BinarySearch(list, number); !found {
			return false
		}
	}
	return true
}
