// Package batching does jobs of concurrent callers together.
package batching

import (
	"context"
	"runtime"
	"slices"
	"sync"
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
	do   func(ctx context.Context, jobs []J)
	turn chan struct{} // has a value while a batch is done

	mu      sync.Mutex
	waiting []*waiter[J]
	met     int // the size of the last batch
}

type waiter[J any] struct {
	job  J
	done chan struct{}
}

// New returns Batches of at most most jobs, for which they call do. A job that is a pointer takes
// its outcome back to its caller. A panic of do is one of the caller that does the batch; the
// others return as if do had returned.
func New[J any](most int, do func(ctx context.Context, jobs []J)) *Batches[J] {
	return &Batches[J]{most: most, do: do, turn: make(chan struct{}, 1)}
}

// Do returns nil when a batch with the job is done, or the error of ctx when it has ended before and
// no batch will have the job. A batch of one job has ctx; a larger one has a context that does not
// end.
func (b *Batches[J]) Do(ctx context.Context, job J) error {
	w := &waiter[J]{job, make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	for {
		select {
		case <-w.done:
			return nil
		case <-ctx.Done():
			if b.leave(w) {
				return ctx.Err()
			}
			<-w.done
		case b.turn <- struct{}{}:
			b.next(ctx, w)
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

// next does a batch, and ends the turn. A single caller can end its batch.
func (b *Batches[J]) next(ctx context.Context, own *waiter[J]) {
	defer func() { <-b.turn }()
	select {
	case <-own.done:
		return // another caller has done the job in the meantime
	default:
	}
	b.gather()
	taken := b.take()
	defer func() {
		for _, w := range taken {
			close(w.done)
		}
	}()
	if len(taken) > 1 || len(taken) == 1 && taken[0] != own {
		ctx = context.WithoutCancel(ctx)
	}
	if len(taken) > 0 {
		jobs := make([]J, len(taken))
		for i, w := range taken {
			jobs[i] = w.job
		}
		b.do(ctx, jobs)
	}
}

// gather lets other goroutines bring their jobs.
func (b *Batches[J]) gather() {
	for began := time.Now(); b.few() && time.Since(began) < pause; {
		runtime.Gosched()
	}
}

// Waiting returns how many jobs wait for a batch.
func (b *Batches[J]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// few reports whether fewer jobs wait than the last batch had.
func (b *Batches[J]) few() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) < b.met
}

func (b *Batches[J]) take() []*waiter[J] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.met = min(b.most, len(b.waiting))
	taken := slices.Clone(b.waiting[:b.met])
	b.waiting = slices.Delete(b.waiting, 0, b.met)
	return taken
}
