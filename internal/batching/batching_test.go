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

// TestJobsThatWaitShareABatch holds the first batch until all others wait: the next ones have as
// many as they may.
func TestJobsThatWaitShareABatch(t *testing.T) {
	is := is.New(t)
	const most, all = 4, 11
	var sizes []int
	began, hold := make(chan struct{}), make(chan struct{})
	b := batching.New(most, func(_ context.Context, jobs []*job) {
		if sizes = append(sizes, len(jobs)); len(sizes) == 1 {
			close(began)
			<-hold
		}
		for _, j := range jobs {
			j.done = true
		}
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
	for ; b.Waiting() < all-1; runtime.Gosched() {
		if t.Context().Err() != nil {
			t.Fatal("not all jobs wait")
		}
	}
	close(hold)
	wait.Wait()
	is.Equal(sizes, []int{1, most, most, all - 1 - 2*most})
}

// TestACallerLeaves ends the context of a caller that waits, of one that is alone in its batch, and
// of all in a batch.
func TestACallerLeaves(t *testing.T) {
	is := is.New(t)
	began, hold := make(chan struct{}), make(chan struct{})
	var sizes []int
	b := batching.New(9, func(ctx context.Context, jobs []*job) {
		sizes = append(sizes, len(jobs))
		began <- struct{}{}
		<-hold
		if ended := ctx.Err() != nil; ended != (len(jobs) == 1) {
			t.Errorf("the context of a batch of %d has ended: %v", len(jobs), ended)
		}
	})
	done := make(chan error, 3)
	do := func(ctx context.Context) { done <- b.Do(ctx, &job{}) }
	alone, leave := context.WithCancel(t.Context())
	go do(alone)
	<-began
	left, end := context.WithCancel(t.Context())
	end()
	is.True(errors.Is(b.Do(left, &job{}), context.Canceled))
	several, end := context.WithCancel(t.Context())
	go do(several)
	go do(several)
	for ; b.Waiting() < 2; runtime.Gosched() {
		if t.Context().Err() != nil {
			t.Fatal("not all jobs wait")
		}
	}
	leave()
	hold <- struct{}{}
	<-began
	end()
	hold <- struct{}{}
	for range 3 {
		is.NoErr(<-done)
	}
	is.Equal(sizes, []int{1, 2})
}

// TestPanicOfABatch is one of the caller that does it: the others return, and the next batch runs.
func TestPanicOfABatch(t *testing.T) {
	is := is.New(t)
	began, hold := make(chan struct{}), make(chan struct{})
	panics := 0
	b := batching.New(9, func(_ context.Context, jobs []*job) {
		switch {
		case jobs[0].n == 1:
			close(began)
			<-hold
		case len(jobs) == 2:
			panic("in a batch")
		}
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
	for ; b.Waiting() < 2; runtime.Gosched() {
		if t.Context().Err() != nil {
			t.Fatal("not all jobs wait")
		}
	}
	close(hold)
	for range 3 {
		is.NoErr(<-done)
	}
	is.Equal(panics, 1)
	is.NoErr(b.Do(t.Context(), &job{n: 4}))
}
