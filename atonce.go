package svc

import (
	"context"
	"sync"
	"sync/atomic"
)

// atOnce does n things, so many at once, until one fails or ctx ends, and returns when none is going on. A panic of one, in a host's
// store perhaps, becomes one of the caller, who can recover from it.
func atOnce(ctx context.Context, n, limit int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	panics := make(chan any, min(n, limit))
	for range min(n, limit) {
		all.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					panics <- cause
					cancel(nil)
				}
			}()
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
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
