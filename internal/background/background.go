// Package background runs background work until it is stopped, and restarts work that panics.
// AtOnce makes a number of calls, a few at a time. Shared calls a function once for many callers.
package background

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Group is a set of background tasks that end together. Its methods are safe for concurrent use.
type Group struct {
	ctx  context.Context
	stop context.CancelFunc
	log  *slog.Logger

	mu    sync.Mutex
	tasks sync.WaitGroup
}

// NewGroup returns a group without tasks. It logs each panic to log.
func NewGroup(log *slog.Logger) *Group {
	g := &Group{log: log}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// restartPause is the time between the panic of a task and its next run.
const restartPause = time.Second

// Start runs task in its own goroutine until End. End ends the task's ctx. A task that panics runs
// again after a second. After End, Start does nothing and returns false.
func (g *Group) Start(task func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.tasks.Go(func() {
		for g.panics(task) && Wait(g.ctx, time.After(restartPause)) {
		}
	})
	return true
}

// panics runs a task and reports whether it panicked.
func (g *Group) panics(task func(ctx context.Context)) (panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			g.log.Error("svc: background work panicked, will restart it",
				"panic", cause, "stack", string(debug.Stack()))
			panicked = true
		}
	}()
	task(g.ctx)
	return false
}

// End stops all tasks and waits for them. Calling it again does nothing.
func (g *Group) End() {
	g.mu.Lock()
	g.stop()
	g.mu.Unlock()
	g.tasks.Wait()
}

// Within returns a ctx that End ends as well, for a call that is no task: End does not wait for it.
// Call release when the call ends. A nil Group ends nothing.
func (g *Group) Within(ctx context.Context) (within context.Context, release func()) {
	if g == nil {
		return ctx, func() {}
	}
	within, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.ctx, cancel)
	return within, func() { stop(); cancel() }
}

// remind is the time between two reports of work that keeps failing.
const remind = time.Minute

// Failing limits the reports of work that is tried again and again. The zero value is ready for use.
type Failing struct{ reported time.Time }

// Due reports whether to report the result of a try: the first failure after a success, then one a
// minute, and the first success after that.
func (f *Failing) Due(err error) bool {
	fails := !f.reported.IsZero()
	if err == nil {
		f.reported = time.Time{}
		return fails
	}
	if fails && time.Since(f.reported) < remind {
		return false
	}
	f.reported = time.Now()
	return true
}

// Reporter returns a function that logs the results of tries that are due. what says in words what
// is tried.
func Reporter(log *slog.Logger, what string) func(ctx context.Context, err error) {
	return func(ctx context.Context, err error) {
		if err != nil {
			log.WarnContext(ctx, "svc: cannot "+what+", will retry", "error", err)
		} else {
			log.InfoContext(ctx, "svc: can "+what+" again")
		}
	}
}

// Wait waits for an event, or for the end of ctx. It reports whether ctx goes on.
func Wait[E any](ctx context.Context, event <-chan E) bool {
	select {
	case <-ctx.Done():
	case <-event:
	}
	return ctx.Err() == nil
}
