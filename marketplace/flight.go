package marketplace

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// flights share the asking for a file between all who want it at the same time.
type flights struct {
	timeout time.Duration // for one

	mu  sync.Mutex
	all map[flightKey]*flight
}

// flightKey is a file, and whether its answer is kept in a store. To keep it may take until a transaction of a host ends: what that asks for
// is kept nowhere, and shares with nobody else.
type flightKey struct {
	fileKey
	kept bool
}

// flight is the asking for one file.
type flight struct {
	cancel  context.CancelFunc
	waiting int           // who still want it
	done    chan struct{} // closed when answer and err are there
	answer  *fileCopy
	err     error
}

// share returns what ask returns, which is called once for all who share a key at the same time. It goes on when one of
// them leaves, and is cancelled when all have left. Errors are ask's, a fault when it panics, and what [ended] makes of
// ctx's end.
func (f *flights) share(ctx context.Context, key flightKey, ask func(ctx context.Context) (*fileCopy, error)) (*fileCopy, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx, "", ctx.Err())
	}
	one := f.board(ctx, key, ask)
	select {
	case <-one.done:
		return one.answer, one.err
	case <-ctx.Done():
		f.leave(key, one)
		return nil, ended(ctx, "", ctx.Err())
	}
}

// board joins the flight for key, or starts it.
func (f *flights) board(ctx context.Context, key flightKey, ask func(ctx context.Context) (*fileCopy, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[key]
	if one == nil {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.timeout)
		one = &flight{cancel: cancel, done: make(chan struct{})}
		f.all[key] = one
		go f.fly(own, key, one, ask)
	}
	one.waiting++
	return one
}

func (f *flights) fly(ctx context.Context, key flightKey, one *flight, ask func(ctx context.Context) (*fileCopy, error)) {
	defer func() {
		if p := recover(); p != nil { // in the caller's goroutine it would not have ended the process
			one.err = failed("could not be read", fmt.Errorf("panic: %v", p))
		}
		f.mu.Lock()
		f.forget(key, one)
		f.mu.Unlock()
		one.cancel()
		close(one.done)
	}()
	one.answer, one.err = ask(ctx)
}

// leave is for who waits no longer.
func (f *flights) leave(key flightKey, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.waiting--; one.waiting == 0 {
		f.forget(key, one)
		one.cancel()
	}
}

// forget makes who comes next start another flight. f.mu is held.
func (f *flights) forget(key flightKey, one *flight) {
	if f.all[key] == one {
		delete(f.all, key)
	}
}
