package marketplace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// flights shares one request for a file among concurrent callers.
type flights struct {
	timeout time.Duration // of one flight

	mu  sync.Mutex
	all map[flightKey]*sharedFetch
}

// flightKey is a file, and whether the flight stores its answer. Calls within a transaction of the
// host store no answer: the store could wait until that transaction ends. So they share no flight
// with other calls.
type flightKey struct {
	fileKey
	stored bool
}

// sharedFetch is one shared request for a file.
type sharedFetch struct {
	cancel  context.CancelFunc
	waiting int           // the number of callers that wait
	done    chan struct{} // closed after answer and err are set
	answer  *fileCopy
	err     error
}

type askFunc func(ctx context.Context) (*fileCopy, error)

// share calls ask once for all concurrent callers with that key, and returns its results. ask goes
// on when a caller leaves. It is cancelled when all callers have left. Errors are ask's, a fault if
// ask panics, and the error of [explain] when ctx ends.
func (f *flights) share(ctx context.Context, key flightKey, ask askFunc) (*fileCopy, error) {
	if ctx.Err() != nil {
		return nil, explain(ctx, "", ctx.Err())
	}
	one := f.board(ctx, key, ask)
	select {
	case <-one.done:
		return one.answer, one.err
	case <-ctx.Done():
		f.leave(key, one)
		return nil, explain(ctx, "", ctx.Err())
	}
}

// board joins the flight for key, or starts it.
func (f *flights) board(ctx context.Context, key flightKey, ask askFunc) *sharedFetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[key]
	if one == nil {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.timeout)
		one = &sharedFetch{cancel: cancel, done: make(chan struct{})}
		f.all[key] = one
		go f.fly(own, key, one, ask)
	}
	one.waiting++
	return one
}

// fly runs ask and ends the flight. It recovers a panic: in its own goroutine a panic ends the
// process, and in the caller's goroutine it would not. ask may also end the goroutine.
func (f *flights) fly(ctx context.Context, key flightKey, one *sharedFetch, ask askFunc) {
	defer func() {
		if p := recover(); p != nil {
			one.err = newFault("cannot be read", fmt.Errorf("panic: %v", p))
		}
		f.mu.Lock()
		f.forget(key, one)
		f.mu.Unlock()
		one.cancel()
		close(one.done)
	}()
	one.err = newFault("cannot be read", errors.New("the call has ended its goroutine"))
	one.answer, one.err = ask(ctx)
}

// leave removes a caller that stops waiting. It cancels the flight after the last one.
func (f *flights) leave(key flightKey, one *sharedFetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.waiting--; one.waiting == 0 {
		f.forget(key, one)
		one.cancel()
	}
}

// forget removes a flight, so that the next caller starts another one. The caller of forget holds
// f.mu.
func (f *flights) forget(key flightKey, one *sharedFetch) {
	if f.all[key] == one {
		delete(f.all, key)
	}
}
