package batching_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/batching"
)

// job is done by a batch.
type job struct {
	n    int
	done bool
}

// awaits returns when so many jobs wait.
func awaits(t *testing.T, b *batching.Batches[*job], n int) {
	for ; b.Waiting() < n; runtime.Gosched() {
		if t.Context().Err() != nil {
			t.Fatalf("%d jobs wait, want %d", b.Waiting(), n)
		}
	}
}

// TestJobsThatWaitShareABatch holds the first batch until all others wait: the next ones have as
// many as they may.
func TestJobsThatWaitShareABatch(t *testing.T) {
	is := is.New(t)
	const most, all = 4, 11
	var sizes []int
	began, hold := make(chan struct{}), make(chan struct{})
	b := batching.New(most, func(_ context.Context, take func() []*job) error {
		jobs := take()
		if sizes = append(sizes, len(jobs)); len(sizes) == 1 {
			close(began)
			<-hold
		}
		for _, j := range jobs {
			j.done = true
		}
		return errors.New("of no interest")
	})
	var wait sync.WaitGroup
	jobs := make([]job, all)
	do := func(j *job) {
		wait.Go(func() {
			if err := b.Do(t.Context(), j); err != nil || !j.done {
				t.Errorf("job %d: done %v, %v", j.n, j.done, err)
			}
		})
	}
	do(&jobs[0])
	<-began
	for i := range jobs[1:] {
		do(&jobs[1+i])
	}
	awaits(t, b, all-1)
	close(hold)
	wait.Wait()
	is.Equal(sizes, []int{1, most, most, all - 1 - 2*most})
}

// TestCallersLeave ends the context of a caller that waits, of the one that does a batch before it
// has taken its jobs, and of some and then all whose jobs it has.
func TestCallersLeave(t *testing.T) {
	is := is.New(t)
	began, ready, step := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b := batching.New(9, func(ctx context.Context, take func() []*job) error {
		began <- struct{}{}
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		jobs := take()
		step <- struct{}{}
		<-step
		if ctx.Err() != nil {
			t.Error("the batch has ended with the first of its callers")
		}
		step <- struct{}{}
		<-ctx.Done()
		for _, j := range jobs {
			j.done = true
		}
		return ctx.Err()
	})
	type call struct {
		job
		leave context.CancelFunc
		err   chan error
	}
	do := func() *call {
		c := &call{err: make(chan error, 1)}
		ctx, leave := context.WithCancel(t.Context())
		c.leave = leave
		go func() { c.err <- b.Do(ctx, &c.job) }()
		return c
	}
	first := do()
	<-began
	second, third, fourth := do(), do(), do()
	awaits(t, b, 4)
	fourth.leave()
	is.True(errors.Is(<-fourth.err, context.Canceled))
	first.leave() // another one does the batch
	is.True(errors.Is(<-first.err, context.Canceled))
	<-began
	ready <- struct{}{}
	<-step
	second.leave()
	step <- struct{}{}
	<-step
	is.True(!second.done && !third.done)
	third.leave()
	is.NoErr(<-second.err)
	is.NoErr(<-third.err)
	is.True(second.done && third.done && !first.done && !fourth.done)
}

// TestABatchThatCannotBegin fails all who wait for it.
func TestABatchThatCannotBegin(t *testing.T) {
	is := is.New(t)
	failure, began, hold := errors.New("no connection"), make(chan struct{}), make(chan struct{})
	b := batching.New(9, func(context.Context, func() []*job) error {
		began <- struct{}{}
		<-hold
		return failure
	})
	errs := make(chan error, 3)
	for range 3 {
		go func() { errs <- b.Do(t.Context(), &job{}) }()
	}
	<-began
	awaits(t, b, 3)
	close(hold)
	for range 3 {
		is.Equal(<-errs, failure)
	}
}

// TestPanicOfABatch is one of the caller that does it: the others return, and the next batch runs.
func TestPanicOfABatch(t *testing.T) {
	is := is.New(t)
	began, hold := make(chan struct{}), make(chan struct{})
	panics := 0
	b := batching.New(9, func(_ context.Context, take func() []*job) error {
		switch jobs := take(); {
		case jobs[0].n == 1:
			close(began)
			<-hold
		case len(jobs) == 2:
			panic("in a batch")
		}
		return nil
	})
	done := make(chan error, 3)
	do := func(n int) {
		var err error
		defer func() {
			if recover() != nil {
				panics++ // at most one goroutine gets here
			}
			done <- err
		}()
		err = b.Do(t.Context(), &job{n: n})
	}
	go do(1)
	<-began
	go do(2)
	go do(3)
	awaits(t, b, 2)
	close(hold)
	for range 3 {
		is.NoErr(<-done)
	}
	is.Equal(panics, 1)
	is.NoErr(b.Do(t.Context(), &job{n: 4}))
}

// TestPanicBeforeTheJobsAreTaken leaves no job whose caller is gone.
func TestPanicBeforeTheJobsAreTaken(t *testing.T) {
	is := is.New(t)
	b := batching.New(9, func(context.Context, func() []*job) error { panic("no batch") })
	func() {
		defer func() { is.Equal(recover(), "no batch") }()
		_ = b.Do(t.Context(), &job{})
	}()
	is.Equal(b.Waiting(), 0)
}
