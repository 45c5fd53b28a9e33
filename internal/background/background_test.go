package background_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/heaptest"
)

func TestTaskThatPanicsRunsAgain(t *testing.T) {
	is := is.New(t)
	var log strings.Builder
	group := background.NewGroup(slog.New(slog.NewTextHandler(&log, nil)))
	ran := 0
	done := make(chan struct{})
	group.Start(func(context.Context) {
		if ran++; ran == 1 {
			panic("once")
		}
		close(done)
	})
	<-done
	group.End()
	is.Equal(ran, 2)
	is.True(strings.Contains(log.String(), "once"))
}

func TestNothingRunsAfterTheEnd(t *testing.T) {
	is := is.New(t)
	group := background.NewGroup(slog.New(slog.DiscardHandler))
	ended := false
	group.Start(func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	before := heaptest.Live()
	for range 10_000 {
		_, release := group.Within(t.Context())
		release()
	}
	is.True(heaptest.Live()-before < 1<<19) // calls that have ended leave nothing
	group.End()
	is.True(ended)
	group.Start(func(context.Context) { t.Error("started after End") })
	group.End()
}

func TestFailuresAreReportedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing background.Failing
		fails := errors.New("down")
		for i, want := range []bool{true, false, true, false} { // every half a minute
			is.New(t).Equal([]any{i, failing.Due(fails)}, []any{i, want})
			time.Sleep(30 * time.Second)
		}
		is.New(t).Equal([]bool{failing.Due(nil), failing.Due(nil), failing.Due(fails)}, []bool{true, false, true})
	})
}

func TestAtOnce(t *testing.T) {
	is := is.New(t)
	var running, most, done atomic.Int64
	err := background.ForEach(t.Context(), 100, 3, func(context.Context, int) error {
		most.Store(max(most.Load(), running.Add(1)))
		running.Add(-1)
		done.Add(1)
		return nil
	})
	is.NoErr(err)
	is.Equal(done.Load(), int64(100))
	is.True(most.Load() <= 3)
}

func TestAtOnceEndsWithTheFirstError(t *testing.T) {
	is := is.New(t)
	bad := errors.New("bad")
	calls := 0
	err := background.ForEach(t.Context(), 100, 1, func(_ context.Context, i int) error {
		if calls++; i == 2 {
			return bad
		}
		return nil
	})
	is.Equal(err, bad)
	is.Equal(calls, 3)
}

func TestAtOnceFailsWhenACallEndsItsGoroutine(t *testing.T) {
	for limit := 1; limit <= 4; limit++ {
		calls := atomic.Int64{}
		err := background.ForEach(t.Context(), 4, limit, func(_ context.Context, i int) error {
			if calls.Add(1); i == 1 {
				runtime.Goexit()
			}
			return nil
		})
		if err == nil {
			t.Error(limit, calls.Load())
		}
	}
}

func TestAtOncePanicsInTheCallersGoroutine(t *testing.T) {
	defer func() {
		if cause := recover(); cause != "once" {
			t.Errorf("panicked with %v, want once", cause)
		}
	}()
	_ = background.ForEach(t.Context(), 4, 2, func(_ context.Context, i int) error {
		if i == 1 {
			panic("once")
		}
		return nil
	})
}

// A caller gets the outcome of a call that began after its own, and concurrent callers share it. A
// panic is an error for those who share it.
func TestShared(t *testing.T) {
	is := is.New(t)
	var shared background.SingleFlight[int64]
	var calls, panics atomic.Int64
	var all sync.WaitGroup
	do := func() {
		defer func() {
			if recover() != nil {
				panics.Add(1)
			}
		}()
		before := calls.Load()
		n, err := shared.Do(func() (int64, error) {
			n := calls.Add(1)
			time.Sleep(time.Microsecond)
			if n%4 == 0 {
				panic("each fourth")
			}
			return n, nil
		})
		if err == nil && n <= before {
			t.Errorf("call %d after %d", n, before)
		}
	}
	for range 4 {
		all.Go(func() {
			for range 1000 {
				do()
			}
		})
	}
	all.Wait()
	is.True(calls.Load() < 4000)            // some were shared
	is.Equal(panics.Load(), calls.Load()/4) // each in the goroutine of its call
}
