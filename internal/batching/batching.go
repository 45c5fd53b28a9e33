// Package batching does jobs of concurrent callers together.
package batching

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// quiet is how long a batch waits for another job while fewer wait than were there at the end of the
// one before: the callers that it has released are about to bring their next jobs.
//
// It also has a bound in number, because a test's clock may stand still.
const (
	quiet = 50 * time.Microsecond
	turns = 1000
)

// Batches does jobs in batches, one at a time. Use [New].
//
// The first caller starts a goroutine for the batches. It ends when no job waits.
type Batches[J any] struct {
	do      func(ctx context.Context, take func(most int) []J) error
	spreads func(err error) bool

	mu      sync.Mutex
	waiting []*waiter[J]
	taken   []*waiter[J] // the jobs of the present batch
	met     int          // the jobs at the end of the last batch, those that waited included
	leads   bool         // a goroutine does the batches
	end     func()       // ends the context of the present batch; nil: none has begun
}

// waiter is a caller with its job.
type waiter[J any] struct {
	ctx  context.Context
	job  J
	seen bool // it waited when the present batch began
	left bool

	done   chan struct{} // closed when the outcome is known
	err    error
	failed any // the value of a panic
}

// New returns Batches that do jobs with a function.
//
// do calls take once, when it can begin: at most most of the jobs that wait then are the batch. None
// are when all callers have left. A job that is a pointer takes its own outcome back to its caller.
// An error or a panic of do is that of all its jobs, and before take of those that waited when do
// was called. One that spreads is also that of all jobs that wait when do returns: the next batch
// would take as long to fail. Nil: none does.
//
// ctx has the values of the first caller. It ends when all callers have left: those that wait or,
// once the jobs are taken, those of the batch.
func New[J any](
	do func(ctx context.Context, take func(most int) []J) error, spreads func(err error) bool,
) *Batches[J] {
	return &Batches[J]{do: do, spreads: spreads}
}

// Do returns when a batch has done the job, or with the error of ctx when none has or will. When
// ctx ends in the meantime, Do waits for the outcome.
func (b *Batches[J]) Do(ctx context.Context, job J) error {
	if err := ctx.Err(); err != nil { // a nil ctx panics here, and not in the goroutine of all
		return err
	}
	w := &waiter[J]{ctx: ctx, job: job, done: make(chan struct{})}
	b.enter(w)
	select {
	case <-w.done:
	case <-ctx.Done():
		if b.leave(w) {
			return ctx.Err()
		}
		<-w.done
	}
	if w.failed != nil {
		panic(w.failed)
	}
	return w.err
}

func (b *Batches[J]) enter(w *waiter[J]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, w)
	if !b.leads {
		b.leads = true
		go b.lead()
	}
}

// leave returns false when a batch has the job.
func (b *Batches[J]) leave(w *waiter[J]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.left = true
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	of := b.waiting
	if b.taken != nil {
		of = b.taken
	}
	if b.end != nil && !slices.ContainsFunc(of, func(w *waiter[J]) bool { return !w.left }) {
		b.end()
	}
	return i >= 0
}

// lead does batches until no job waits.
func (b *Batches[J]) lead() {
	idle := false
	defer func() {
		if !idle { // a job has ended this goroutine: another one takes over
			go b.lead()
		}
	}()
	for b.next() {
	}
	idle = true
}

var errEnded = errors.New("another job of the same batch ended its goroutine: try again")

// next does a batch and reports whether there may be more.
func (b *Batches[J]) next() (more bool) {
	ctx := b.begin()
	if more = ctx != nil; more {
		err := errEnded
		defer func() { b.report(err, recover()) }()
		err = b.do(ctx, func(most int) []J { return b.take(ctx, most) })
	}
	return more
}

// begin returns the context of the next batch. When no job waits, it is nil, and the goroutine
// must end.
func (b *Batches[J]) begin() (ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.leads, b.end = false, nil
		return nil
	}
	for _, w := range b.waiting {
		w.seen = true
	}
	ctx, b.end = context.WithCancel(context.WithoutCancel(b.waiting[0].ctx))
	return ctx
}

func (b *Batches[J]) take(ctx context.Context, most int) (jobs []J) {
	b.gather(most)
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	b.taken = b.cut(min(most, len(b.waiting)))
	for _, w := range b.taken {
		jobs = append(jobs, w.job)
	}
	return jobs
}

// gather lets other goroutines run as long as they bring jobs.
func (b *Batches[J]) gather(most int) {
	seen, came := 0, time.Now()
	for turn := 0; turn < turns && time.Since(came) < quiet; turn++ {
		waiting, met := b.count()
		if waiting >= min(met, most) {
			return
		}
		if waiting > seen {
			seen, came = waiting, time.Now()
		}
		runtime.Gosched()
	}
}

func (b *Batches[J]) count() (waiting, met int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting), b.met
}

// cut removes and returns the first n callers.
func (b *Batches[J]) cut(n int) []*waiter[J] {
	first := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return first
}

// report gives the jobs of a batch their outcome and releases their callers.
func (b *Batches[J]) report(err error, failed any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
	of := b.taken
	b.met, b.taken = len(of)+len(b.waiting), nil
	switch {
	case err != nil && b.spreads != nil && b.spreads(err):
		of = append(of, b.cut(len(b.waiting))...)
	case of == nil && (err != nil || failed != nil):
		seen := 0
		for seen < len(b.waiting) && b.waiting[seen].seen {
			seen++
		}
		of = b.cut(seen)
	}
	for _, w := range of {
		w.err, w.failed = err, failed
		close(w.done)
	}
}

// Waiting returns how many jobs wait for a batch.
func (b *Batches[J]) Waiting() int {
	waiting, _ := b.count()
	return waiting
}
