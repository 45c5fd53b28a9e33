package background

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

var errGoexit = errors.New("a call has ended its goroutine")

// ForEach calls do with 0 to n-1, at most limit calls at a time, until one fails or ctx ends. It
// returns after the last call has ended, with the first error or that of ctx. When a call panics,
// ForEach panics with the same cause in the caller's goroutine. When a call ends its goroutine
// (runtime.Goexit), it fails.
func ForEach(ctx context.Context, n, limit int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	panics := make(chan any, min(n, limit))
	for range min(n, limit) {
		all.Go(func() {
			returned := false
			defer func() {
				if cause := recover(); cause != nil {
					panics <- cause
					cancel(nil)
				} else if !returned {
					cancel(errGoexit)
				}
			}()
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
			returned = true
		})
	}
	all.Wait()
	select {
	case cause := <-panics:
		panic(cause)
	default:
		return context.Cause(ctx)
	}
}

// Call runs do in a new goroutine and returns its error. Panics and Goexit are as in [ForEach].
func Call(do func() error) error {
	return ForEach(context.Background(), 1, 1, func(context.Context, int) error { return do() })
}
