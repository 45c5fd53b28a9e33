// Package semaphore bounds how many callers do something at a time.
package semaphore

import (
	"context"
	"sync"
	"time"
)

// Semaphore admits as many callers at a time as its channel has room for. Make it with make. It is
// safe for concurrent use.
type Semaphore chan struct{}

// Acquire waits until the caller is admitted, at most until ctx ends: the error is that of ctx. It
// admits immediately where there is room, whatever ctx says. release is never nil. It does nothing
// after an error, or when it is called again.
func (s Semaphore) Acquire(ctx context.Context) (release func(), err error) {
	if release, admitted := s.TryAcquire(); admitted {
		return release, nil
	}
	select {
	case s <- struct{}{}:
		return s.once(), nil
	case <-ctx.Done():
		return func() {}, ctx.Err()
	}
}

// AcquireWithin is Acquire that waits no longer than a time: the error is then late.
func (s Semaphore) AcquireWithin(
	ctx context.Context, longest time.Duration, late error,
) (release func(), err error) {
	waits, end := context.WithTimeout(ctx, longest)
	defer end()
	if release, err = s.Acquire(waits); err != nil && ctx.Err() == nil {
		err = late
	}
	return release, err
}

// TryAcquire is Acquire that does not wait.
func (s Semaphore) TryAcquire() (release func(), admitted bool) {
	select {
	case s <- struct{}{}:
		return s.once(), true
	default:
		return func() {}, false
	}
}

func (s Semaphore) once() func() { return sync.OnceFunc(func() { <-s }) }
