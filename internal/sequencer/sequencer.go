// Package sequencer runs work in the background, soon after it is asked to.
package sequencer

import (
	"context"
	"time"

	"github.com/extsvc/svc/internal/background"
)

const (
	pause   = 10 * time.Millisecond // between a question and the work: more questions share it
	timeout = 5 * time.Second       // for the last work, after the end
)

// Sequencer runs Do 10 ms after [Sequencer.Wake], and unasked at intervals. Use [New]. A nil
// Sequencer does nothing.
type Sequencer struct {
	do     func(ctx context.Context) error
	report func(ctx context.Context, err error)
	every  time.Duration
	asked  chan struct{}
}

// New returns a Sequencer that runs do. It calls report before it tries again: when do fails after a
// success, then once a minute, and with nil when do succeeds again.
func New(
	every time.Duration, do func(ctx context.Context) error,
	report func(ctx context.Context, err error),
) *Sequencer {
	return &Sequencer{do, report, every, make(chan struct{}, 1)}
}

// Wake asks for work. It never waits.
func (s *Sequencer) Wake() {
	if s == nil {
		return
	}
	select {
	case s.asked <- struct{}{}:
	default: // somebody has asked already
	}
}

// Run works until ctx ends. Work that was asked for by then is tried once more.
func (s *Sequencer) Run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	var failing background.Failing
	for ctx.Err() == nil {
		if err := s.do(ctx); err != nil && ctx.Err() != nil {
			s.Wake() // the end has cut off the work
		} else if failing.Due(err) {
			s.report(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-s.asked:
			background.Wait(ctx, time.After(pause))
			s.Wake() // until the work begins: it may end here
		}
		if ctx.Err() == nil {
			s.taken()
		}
	}
	if s.taken() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if err := s.do(ctx); err != nil {
			s.report(ctx, err)
		}
	}
}

// taken takes the question, if there is one.
func (s *Sequencer) taken() bool {
	select {
	case <-s.asked:
		return true
	default:
		return false
	}
}
