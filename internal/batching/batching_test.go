package batching_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
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

// Jobs that wait share the next batches: each has as many as it may.
func TestJobsThatWaitShareABatch(t *testing.T) {
	const most, all = 4, 11
	var sizes []int
	began, hold := make(chan struct{}), make(chan struct{})
	b := batching.New(func(_ context.Context, take func(int) []*job) error {
		jobs := take(most)
		if sizes = append(sizes, len(jobs)); len(sizes) == 1 {
			close(began)
			<-hold
		}
		for _, j := range jobs {
			j.done = true
		}
		return nil
	}, nil)
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
	is.New(t).Equal(sizes, []int{1, most, most, all - 1 - 2*most})
}

// However many jobs come at once, one goroutine does the batches.
func TestOneBatchAtATime(t *testing.T) {
	for range 200 {
		var running, all sync.WaitGroup
		var busy, overlapping atomic.Int32
		b := batching.New(func(_ context.Context, take func(int) []*job) error {
			if busy.Add(1) > 1 {
				overlapping.Add(1)
			}
			take(1)
			runtime.Gosched()
			busy.Add(-1)
			return nil
		}, nil)
		running.Add(8)
		for range 8 {
			all.Go(func() {
				running.Done()
				running.Wait()
				_ = b.Do(t.Context(), &job{})
			})
		}
		all.Wait()
		if n := overlapping.Load(); n > 0 {
			t.Fatalf("%d batches began beside another", n)
		}
	}
}

// call is a job of a caller who may leave.
type call struct {
	job
	leave context.CancelFunc
	err   chan error
}

func start(t *testing.T, b *batching.Batches[*job]) *call {
	c := &call{err: make(chan error, 1)}
	ctx, leave := context.WithCancel(t.Context())
	c.leave = leave
	go func() { c.err <- b.Do(ctx, &c.job) }()
	return c
}

// A batch goes on for those who stay, before and after it has taken its jobs.
func TestCallersLeave(t *testing.T) {
	is := is.New(t)
	began, ready, step := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b := batching.New(func(ctx context.Context, take func(int) []*job) error {
		began <- struct{}{}
		<-ready
		jobs := take(9)
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
		return nil
	}, nil)
	first := start(t, b)
	<-began
	second, third := start(t, b), start(t, b)
	awaits(t, b, 3)
	first.leave()
	is.True(errors.Is(<-first.err, context.Canceled))
	ready <- struct{}{}
	<-step
	fourth := start(t, b) // for the next batch
	awaits(t, b, 1)
	fourth.leave()
	is.True(errors.Is(<-fourth.err, context.Canceled))
	second.leave()
	step <- struct{}{}
	<-step
	is.True(!second.done && !third.done)
	third.leave()
	is.NoErr(<-second.err) // they have waited for the outcome
	is.NoErr(<-third.err)
	is.True(second.done && third.done && !first.done)
}

// When all who wait leave, a batch that cannot begin ends. Who comes then is of the next one.
func TestAllCallersLeave(t *testing.T) {
	is := is.New(t)
	began, late := make(chan struct{}), make(chan struct{})
	b := batching.New(func(ctx context.Context, take func(int) []*job) error {
		began <- struct{}{}
		if late != nil {
			<-ctx.Done()
			<-late
			late = nil
			is.Equal(len(take(9)), 0)
			return ctx.Err()
		}
		is.Equal(len(take(9)), 1)
		return nil
	}, nil)
	first, second := start(t, b), start(t, b)
	<-began
	awaits(t, b, 2)
	first.leave()
	second.leave()
	is.True(errors.Is(<-first.err, context.Canceled))
	is.True(errors.Is(<-second.err, context.Canceled))
	third := start(t, b)
	awaits(t, b, 1)
	late <- struct{}{}
	<-began
	is.NoErr(<-third.err)
}

// A failure before the jobs are taken is of those only who waited from its start.
func TestABatchThatCannotBegin(t *testing.T) {
	is := is.New(t)
	failure, began, hold := errors.New("no connection"), make(chan struct{}), make(chan struct{})
	b := batching.New(func(_ context.Context, take func(int) []*job) error {
		began <- struct{}{}
		if <-hold; failure != nil {
			return failure
		}
		take(1)
		return nil
	}, nil)
	first := start(t, b)
	<-began
	second, third := start(t, b), start(t, b)
	awaits(t, b, 3)
	hold <- struct{}{}
	is.Equal(<-first.err, failure)
	<-began
	fourth := start(t, b)
	awaits(t, b, 3)
	hold <- struct{}{}
	is.Equal(<-second.err, failure)
	is.Equal(<-third.err, failure)
	<-began
	failure = nil
	hold <- struct{}{}
	is.NoErr(<-fourth.err)
}

// An error that spreads is also that of all who wait when the batch ends. Another one is not.
func TestErrorsSpread(t *testing.T) {
	is := is.New(t)
	spread, own := errors.New("no answer"), errors.New("refused")
	began, ends := make(chan struct{}), make(chan error)
	b := batching.New(func(_ context.Context, take func(int) []*job) error {
		take(1)
		began <- struct{}{}
		return <-ends
	}, func(err error) bool { return err == spread })
	first := start(t, b)
	<-began
	second, third := start(t, b), start(t, b)
	awaits(t, b, 2)
	ends <- own
	is.Equal(<-first.err, own)
	<-began
	ends <- spread
	is.Equal(<-second.err, spread)
	is.Equal(<-third.err, spread)
	fourth := start(t, b) // it goes on
	<-began
	ends <- nil
	is.NoErr(<-fourth.err)
}

// A function that panics or ends its goroutine has an outcome for each job of its batch.
func TestABatchThatEndsItsGoroutine(t *testing.T) {
	type outcome struct {
		err    error
		failed any
	}
	for name, test := range map[string]struct {
		end  func(take func(int) []*job)
		want any
	}{
		"panic":        {func(take func(int) []*job) { take(9); panic("in a batch") }, "in a batch"},
		"panic before": {func(func(int) []*job) { panic("no batch") }, "no batch"},
		"goexit":       {func(take func(int) []*job) { take(9); runtime.Goexit() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			began, hold := make(chan struct{}), make(chan struct{})
			batches := 0
			b := batching.New(func(_ context.Context, take func(int) []*job) error {
				began <- struct{}{}
				<-hold
				if batches++; batches == 2 {
					test.end(take)
				}
				take(1)
				return nil
			}, nil)
			outcomes := make(chan outcome, 2)
			do := func() {
				var o outcome
				defer func() {
					o.failed = recover()
					outcomes <- o
				}()
				o.err = b.Do(t.Context(), &job{})
			}
			go do()
			<-began
			go do()
			go do()
			awaits(t, b, 3)
			hold <- struct{}{}
			is.Equal(<-outcomes, outcome{})
			<-began
			hold <- struct{}{}
			for range 2 {
				o := <-outcomes
				is.Equal(o.failed, test.want)
				is.True(o.failed != nil || o.err != nil)
			}
			go do() // it goes on
			<-began
			hold <- struct{}{}
			is.Equal(<-outcomes, outcome{})
		})
	}
}
