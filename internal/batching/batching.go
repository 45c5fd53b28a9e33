// Package batching does jobs of concurrent callers together.
package batching

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// pause is how long a batch waits for jobs while it has fewer than the one before: the callers that
// this one has released are about to bring their next jobs.
const pause = 100 * time.Microsecond

// Batches does jobs in batches, one at a time. Use [New].
//
// The first caller that waits does what waits by then, in its own goroutine. A single caller
// waits for nothing.
type Batches[J any] struct {
	most int
	do   func(ctx context.Context, take func() []J) error
	turn chan struct{} // has a value while a batch is done

	mu      sync.Mutex
	waiting []*waiter[J]
	met     int // the size of the last batch
}

type waiter[J any] struct {
	ctx  context.Context
	job  J
	done chan struct{}
	err  error // when done

	stays func() bool // ends the look at ctx
}

// New returns Batches of at most most jobs. A job that is a pointer takes its outcome back to its
// caller.
//
// do calls take once, when it can begin: the jobs that wait then are the batch. Its error counts
// only if it has not called take: then it is that of all who wait. ctx ends with the context of
// the caller that does the batch; once the jobs are taken, with those of all their callers. A
// panic of do is one of the caller that does the batch; the others return as if do had returned.
func New[J any](
	most int, do func(ctx context.Context, take func() []J) error,
) *Batches[J] {
	return &Batches[J]{most: most, do: do, turn: make(chan struct{}, 1)}
}

// Do returns nil when a batch has done the job, or the error of ctx or of the batch when no batch
// has or will.
func (b *Batches[J]) Do(ctx context.Context, job J) error {
	w := &waiter[J]{ctx: ctx, job: job, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	defer b.leave(w) // a panic must leave no job without a caller
	for {
		select {
		case <-w.done:
			return w.err
		case <-ctx.Done():
			if b.leave(w) {
				return ctx.Err()
			}
			<-w.done
		case b.turn <- struct{}{}:
			b.next(w)
		}
	}
}

// leave removes a job that no batch has.
func (b *Batches[J]) leave(w *waiter[J]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

// next does a batch, and ends the turn.
func (b *Batches[J]) next(own *waiter[J]) {
	defer func() { <-b.turn }()
	select {
	case <-own.done:
		return // another caller has done the job in the meantime
	default:
	}
	ctx, end := context.WithCancel(context.WithoutCancel(own.ctx))
	defer end()
	lead := context.AfterFunc(own.ctx, end)
	defer lead()
	var taken []*waiter[J]
	defer func() {
		for _, w := range taken {
			w.stays()
			close(w.done)
		}
	}()
	err := b.do(ctx, func() (jobs []J) {
		if !lead() {
			return nil // the caller has left
		}
		taken = b.take()
		var left atomic.Int32
		for _, w := range taken {
			jobs = append(jobs, w.job)
			w.stays = context.AfterFunc(w.ctx, func() {
				if left.Add(1) == int32(len(taken)) {
					end()
				}
			})
		}
		return jobs
	})
	if taken == nil && err != nil && own.ctx.Err() == nil {
		for _, w := range b.take() {
			w.err = err
			close(w.done)
		}
	}
}

// take takes the next jobs. It lets other goroutines bring theirs first.
func (b *Batches[J]) take() (taken []*waiter[J]) {
	for began := time.Now(); b.few() && time.Since(began) < pause; {
		runtime.Gosched()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.met = min(b.most, len(b.waiting))
	taken = slices.Clone(b.waiting[:b.met])
	b.waiting = slices.Delete(b.waiting, 0, b.met)
	return taken
}

// few reports whether fewer jobs wait than the last batch had.
func (b *Batches[J]) few() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) < b.met
}

// Waiting returns how many jobs wait for a batch.
func (b *Batches[J]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}
