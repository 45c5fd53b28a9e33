// Package lists has what is done with slices and sequences of rows of any type.
package lists

import (
	"context"
	"iter"
	"slices"
)

// Index returns rows by key. Keys are unique in a store and in a normalized bundle; else the last
// counts.
func Index[R any, K comparable](rows []R, key func(R) K) map[K]*R {
	m := make(map[K]*R, len(rows))
	for i := range rows {
		m[key(rows[i])] = &rows[i]
	}
	return m
}

// Map returns what row makes of each row. A nil list stays nil.
func Map[J, R any](list []J, row func(J) R) []R {
	if list == nil {
		return nil
	}
	rows := make([]R, len(list))
	for i, j := range list {
		rows[i] = row(j)
	}
	return rows
}

// Sorted returns a sorted copy without duplicates, never nil. A repeated member is no error.
func Sorted[T comparable](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// Missing returns the elements of list that are not in other. Both are sorted.
func Missing[T any](list, other []T, compare func(a, b T) int) (out []T) {
	for _, x := range list {
		if _, found := slices.BinarySearchFunc(other, x, compare); !found {
			out = append(out, x)
		}
	}
	return out
}

// Gone calls do with each key that no row has.
func Gone[R any, K comparable](keys []K, rows []R, key func(R) K, do func(K)) {
	there := Index(rows, key)
	for _, k := range keys {
		if _, found := there[k]; !found {
			do(k)
		}
	}
}

// Take ends a list after limit rows. 0: it has no limit. An error counts as a row; it is the last
// value in any case.
func Take[T any](limit int, rows iter.Seq2[T, error]) iter.Seq2[T, error] {
	if limit == 0 {
		return rows
	}
	return func(yield func(T, error) bool) {
		left := limit
		for row, err := range rows {
			if left--; !yield(row, err) || left == 0 {
				return
			}
		}
	}
}

// Skip leaves out the first rows of a list.
func Skip[R any](n int, rows iter.Seq2[R, error]) iter.Seq2[R, error] {
	if n == 0 {
		return rows
	}
	return func(yield func(R, error) bool) {
		left := n
		for row, err := range rows {
			if left--; (err != nil || left < 0) && !yield(row, err) {
				return
			}
		}
	}
}

// Chunks yields the rows of the chunks that next returns, from the page first on. It ends at an
// empty chunk, or at one of fewer than full rows. advance moves the page after the last row. wrap
// makes the error of next, or of the end of ctx, that of the list. An error is yielded once, last.
//
// allowed, unless nil, runs first, when the caller ranges over the list and not before, and may
// change the page. Each loop over the sequence has its own page.
func Chunks[P, T any](
	ctx context.Context, first P, full int, wrap func(error) error,
	allowed func(page *P) error, next func(page P) ([]T, error), advance func(page *P, last T),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		page := first
		if allowed != nil {
			if err := allowed(&page); err != nil {
				yield(zero, err)
				return
			}
		}
		for {
			chunk, err := next(page)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(zero, wrap(err))
				return
			}
			for _, row := range chunk {
				if !yield(row, nil) {
					return
				}
			}
			if len(chunk) == 0 || len(chunk) < full {
				return
			}
			advance(&page, chunk[len(chunk)-1])
		}
	}
}
