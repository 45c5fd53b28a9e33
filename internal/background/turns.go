package background

import (
	"context"
	"sync/atomic"
)

// Turns lets one call at a time run a function. The others wait without holding anything, and fail
// with the one that they wait for. Use [NewTurns].
type Turns struct {
	turn     chan struct{}
	failures atomic.Uint64
	last     error // of the failures; belongs to the call that has the turn
}

// NewTurns returns Turns that nobody waits for.
func NewTurns() *Turns { return &Turns{turn: make(chan struct{}, 1)} }

// Do waits for its turn, until ctx ends, and calls fn. When another call fails while Do waits, Do
// returns that error and does not call fn: so calls that wait for a lock together do not wait one
// after the other. An error of a call whose own ctx has ended is not shared.
func (t *Turns) Do(ctx context.Context, fn func() error) error {
	failures := t.failures.Load()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.failures.Load() != failures {
		return t.last
	}
	err := fn()
	if err != nil && ctx.Err() == nil {
		t.last = err
		t.failures.Add(1)
	}
	return err
}
