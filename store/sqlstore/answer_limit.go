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

// The Store probes a silent database until it answers again.
const (
	probePause = time.Second            // between two probes
	verdict    = 250 * time.Millisecond // how long a call waits for the answer to the first probe
)

// stoodStill is how late a timer of a process is that did not run in the meantime, as on a machine
// that was suspended.
const stoodStill = time.Second / 2

// errSilent is the error of a call when the database does not answer in time.
var errSilent = fmt.Errorf("%w: the database does not answer", svc.ErrUnavailable)

// answerLimit limits how long calls wait for a database that does not answer. It also remembers the
// silence, so a request of several calls waits only once. Nil sets no limit: calls wait
// as long as their contexts allow.
type answerLimit struct {
	longest time.Duration
	db      *sql.DB // nil: a transaction of the host, where silence is not remembered

	silent atomic.Bool // whether over is set
	mu     sync.Mutex
	over   chan struct{} // closed when the database answers again; nil: the database answers
	since  time.Time
}

type unhurried struct{}

// withoutHurry returns a context without its own limit, for large bundles. Only the driver limits
// its calls.
func withoutHurry(ctx context.Context) context.Context {
	return context.WithValue(ctx, unhurried{}, true)
}

func hasTime(ctx context.Context) bool { return ctx.Value(unhurried{}) != nil }

// check fails while the database is silent. It waits a moment for the first probe: one call that
// waited too long for a lock is no reason to refuse others.
func (s *answerLimit) check(ctx context.Context) error {
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

// begin notes that a call got no answer, and probes the database until it answers.
func (s *answerLimit) begin() {
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
func (s *answerLimit) end() {
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

// probe asks the database again and again. It does not wait for one answer before it asks on
// another connection: the existing connections may be dead.
func (s *answerLimit) probe(over <-chan struct{}) {
	for {
		go s.ask()
		select {
		case <-over:
			return
		case <-time.After(probePause):
		}
	}
}

// ask pings the database. Any answer ends the silence, even a refusal: calls find a refusal
// themselves.
func (s *answerLimit) ask() {
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

// callTimer limits the waits for answers: of one statement, or of a transaction's statements one
// after the other. No time counts while no statement runs. Nil sets no limit.
type callTimer struct {
	silence *answerLimit
	ctx     context.Context // ends when the wait ends
	cancel  context.CancelCauseFunc
	timer   *time.Timer

	mu  sync.Mutex
	due time.Time // when the wait has been too long; zero: no statement runs
}

// hear begins a wait. The statement must use the returned context, which ends with ctx, or after
// s.longest.
func (s *answerLimit) hear(ctx context.Context) (context.Context, *callTimer, error) {
	if s == nil || hasTime(ctx) {
		return ctx, nil, nil
	}
	if err := s.check(ctx); err != nil {
		return ctx, nil, err
	}
	h := &callTimer{silence: s}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = time.Now().Add(s.longest)
	h.timer = time.AfterFunc(s.longest, h.late)
	return h.ctx, h, nil
}

// late ends the wait. Where this process stood still, it waits once more: the answer may have come
// in the meantime, and was not read. It may also run late itself, when the next wait has begun.
func (h *callTimer) late() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch late := time.Since(h.due); {
	case h.due.IsZero():
	case late < 0:
		h.timer.Reset(-late)
	case late > stoodStill:
		h.wait()
	default:
		h.cancel(errSilent)
	}
}

// wait begins a wait. The caller holds mu.
func (h *callTimer) wait() {
	h.due = time.Now().Add(h.silence.longest)
	h.timer.Reset(h.silence.longest)
}

// resume begins to wait for the next answer.
func (h *callTimer) resume() {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.wait()
	}
}

// rest ends the wait for an answer that may not have come.
func (h *callTimer) rest() {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.due = time.Time{}
		h.timer.Stop()
	}
}

// pause ends the wait for an answer. When the wait was too long, it returns errSilent for err.
func (h *callTimer) pause(err error) error {
	if h == nil {
		return err
	}
	h.rest()
	switch {
	case err == nil:
		h.silence.end()
	case errors.Is(context.Cause(h.ctx), errSilent) && !errors.Is(err, errSilent):
		h.silence.begin()
		// Do not wrap err: it says that a context was canceled, but not the caller's.
		return fmt.Errorf("%w within %s: %v", errSilent, h.silence.longest, err)
	}
	return err
}

// end ends the wait.
func (h *callTimer) end() {
	if h != nil {
		h.rest()
		h.cancel(nil)
	}
}
