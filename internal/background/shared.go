package background

import (
	"errors"
	"sync"
	"sync/atomic"
)

// SingleFlight calls a function for many callers. The zero value is ready to use.
type SingleFlight[T any] struct {
	begun atomic.Uint64

	mu    sync.Mutex
	value T
	err   error
}

var errPanicked = errors.New("the call has panicked")

// Do returns what a call of fn returns that began after the call of Do. Calls of fn come one after
// the other, and concurrent callers share one. So fn must not depend on its caller.
func (s *SingleFlight[T]) Do(fn func() (T, error)) (T, error) {
	begun := s.begun.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.Load() == begun {
		s.begun.Add(1)
		s.err = errPanicked // for the others, unless fn returns
		s.value, s.err = fn()
	}
	return s.value, s.err
}
