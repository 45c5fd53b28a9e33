package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

// How the Store finds out that a silent database answers again.
const (
	probePause = time.Second            // between two questions
	verdict    = 250 * time.Millisecond // how long a call waits for the answer to the first one
)

// errSilent is the error of a call that the database did not answer in time.
var errSilent = fmt.Errorf("%w: the database does not answer", svc.ErrUnavailable)

// silence bounds how long calls wait for a database that says nothing, and remembers that it says nothing: a request
// that makes several calls then waits for one of them. Nil: calls wait as long as their contexts say.
type silence struct {
	longest time.Duration
	db      *sql.DB // nil: a transaction of the host, which has no memory of silence

	silent atomic.Bool // over is set
	mu     sync.Mutex
	over   chan struct{} // is closed when the database answers again; nil: the database answers
	since  time.Time
}

type unhurried struct{}

// withoutHurry returns a context whose calls may take as long as the driver lets them: those of large bundles.
func withoutHurry(ctx context.Context) context.Context {
	return context.WithValue(ctx, unhurried{}, true)
}

func hasTime(ctx context.Context) bool { return ctx.Value(unhurried{}) != nil }

// check fails while the database is silent. It waits a moment for the first question: a call that waited for a lock for too
// long is no reason to refuse others.
func (s *silence) check(ctx context.Context) error {
	if !s.silent.Load() {
		return nil
	}
	s.mu.Lock()
	over, left := s.over, time.Until(s.since.Add(verdict))
	s.mu.Unlock()
	if over == nil {
		return nil
	}
	late := time.NewTimer(left)
	defer late.Stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errSilent
	}
}

// begin notes that a call was not answered, and asks the database until it answers.
func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil || s.over != nil {
		return
	}
	s.over, s.since = make(chan struct{}), time.Now()
	s.silent.Store(true)
	go s.probe(s.over)
}

// end notes that the database answers.
func (s *silence) end() {
	if !s.silent.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		close(s.over)
		s.over = nil
		s.silent.Store(false)
	}
}

// probe asks again and again, and does not wait for one answer before it asks on another connection: those that there were
// may be dead.
func (s *silence) probe(over <-chan struct{}) {
	for {
		go s.ask()
		select {
		case <-over:
			return
		case <-time.After(probePause):
		}
	}
}

// ask ends the silence when it gets any answer: a refusal is one too, and calls find it out by themselves.
func (s *silence) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), s.longest)
	defer cancel()
	err := s.db.PingContext(ctx)
	late, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	if err == nil || ctx.Err() == nil && !(ok && late.Timeout()) {
		s.end()
	}
}

// hearing is the wait for answers of one statement, or of those of a transaction, which are waited for one after the
// other. It counts no time in which nothing is asked. A nil hearing waits without end.
type hearing struct {
	silence *silence
	ctx     context.Context // ends when the wait is over
	cancel  context.CancelCauseFunc
	timer   *time.Timer
}

// hear begins to wait. Its context is for what is waited for, and ends with cancel, or after longest.
func (s *silence) hear(ctx context.Context) (context.Context, *hearing, error) {
	if s == nil || hasTime(ctx) {
		return ctx, nil, nil
	}
	if err := s.check(ctx); err != nil {
		return ctx, nil, err
	}
	h := &hearing{silence: s}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.timer = time.AfterFunc(s.longest, func() { h.cancel(errSilent) })
	return h.ctx, h, nil
}

// resume begins to wait for the next answer.
func (h *hearing) resume() {
	if h != nil {
		h.timer.Reset(h.silence.longest)
	}
}

// pause ends the wait for an answer, and gives err another meaning when the wait was too long.
func (h *hearing) pause(err error) error {
	if h == nil {
		return err
	}
	h.timer.Stop()
	switch {
	case err == nil:
		h.silence.end()
	case errors.Is(context.Cause(h.ctx), errSilent) && !errors.Is(err, errSilent):
		h.silence.begin()
		return fmt.Errorf("%w within %s: %v", errSilent, h.silence.longest, err) // err says that a context was canceled: not the caller's
	}
	return err
}

// end ends the wait.
func (h *hearing) end() {
	if h != nil {
		h.timer.Stop()
		h.cancel(nil)
	}
}
