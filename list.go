package svc

import (
	"context"
	"iter"
)

// listChunk is how many rows a list reads at a time, so that no connection is held while a caller deals with them.
const listChunk = 128

// anyLength is for lists whose chunks may end early, because their rows are large: only an empty one is the end.
const anyLength = 0

// list yields what next returns, chunk by chunk until an empty one, or one of fewer than full rows; advance moves the page behind the
// last row. An error is yielded once, last.
func list[T any](ctx context.Context, doing string, full int, allowed func() error, next func() ([]T, error), advance func(last T)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		if err := allowed(); err != nil {
			yield(zero, err)
			return
		}
		for {
			chunk, err := next()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(zero, fault(doing, err))
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
			advance(chunk[len(chunk)-1])
		}
	}
}
