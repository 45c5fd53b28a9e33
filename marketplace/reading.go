package marketplace

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/semaphore"
)

// defaultReading is the default of [Config].Reading in bytes.
const defaultReading = 64 << 20

// smallAnswer is the size up to which an answer is read without a turn, in bytes. Most sources have
// no larger file, and a slow one holds up no other.
const smallAnswer = 512 << 10

// errTooSlow is the cancellation cause of a reader that holds its turn for long while others wait.
var errTooSlow = errors.New("others wait for this answer's turn")

// reading bounds the bytes of the answers that are being read and parsed at the same time. Readers
// wait in turn. All sources of users share half of the bytes, so they never hold up the sources of
// the server, and each user reads one answer at a time.
type reading struct {
	limit int64
	wait  time.Duration // for a turn

	mu      sync.Mutex
	queue   []*turn // in the order in which they came
	used    int64
	private int64           // the part of used that is of users
	busy    map[string]bool // the users whose answer is being read
	holders []*turn         // that still read, in the order of their grants
	peak    int64           // the greatest used so far
}

func newReading(limit int, wait time.Duration) *reading {
	limit = cmp.Or(limit, defaultReading)
	return &reading{limit: int64(limit), wait: wait, busy: map[string]bool{}}
}

// turn is the part of one reader in the bytes of a reading. It is not safe for concurrent use. A
// nil turn takes nothing: its reader has a small limit.
type turn struct {
	of      *reading
	user    bool
	owner   string        // of the source of a user
	bytes   int64         // wanted, then held
	granted chan struct{} // closed with the grant; nil: not asked yet
	since   time.Time     // the grant
	cancel  context.CancelCauseFunc
}

// turn returns the turn of a reader of a source, and the context to read with. End it when the
// answer is parsed.
func (r *reading) turn(ctx context.Context, source svc.SourceKey) (context.Context, *turn) {
	ctx, cancel := context.WithCancelCause(ctx)
	user := source.Scope == svc.ScopePersonal
	return ctx, &turn{of: r, user: user, owner: source.Owner, cancel: cancel}
}

// take waits for n bytes. A reader that wants more than there are in all reads while no other does.
// It takes once: a reader that holds a part waits for nothing, so none waits for ever. Errors are a
// fault, or ctx's.
func (t *turn) take(ctx context.Context, n int) error {
	if t == nil {
		return nil
	}
	r := t.of
	t.bytes, t.granted = min(int64(n), t.most()), make(chan struct{})
	r.mu.Lock()
	r.queue = append(r.queue, t)
	r.grant()
	r.mu.Unlock()
	tick := time.NewTicker(r.wait / patience)
	defer tick.Stop()
	for range patience {
		select {
		case <-t.granted:
			return nil
		case <-ctx.Done():
			t.end()
			return ctx.Err()
		case <-tick.C:
			r.hurry(t)
		}
	}
	t.end()
	const reason = "waited too long for other answers that this server is reading: try again"
	return &fault{code: svc.CodeUnavailable, reason: reason, err: svc.ErrSourceWaits}
}

// patience is how often a reader that waits looks for one that is too slow.
const patience = 3

// hurry ends the reader that has held its turn for longest, if it is of t's kind and has held it
// for a part of the time that t may wait. So a source that sends slowly, perhaps on purpose, does
// not hold up others for long.
func (r *reading) hurry(t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, holder := range r.holders {
		if holder.user == t.user && time.Since(holder.since) >= r.wait/patience {
			holder.cancel(errTooSlow)
			return
		}
	}
}

// most returns the most bytes that a turn can hold.
func (t *turn) most() int64 {
	if t.user {
		return max(1, t.of.limit/2)
	}
	return t.of.limit
}

// keep gives back what the turn holds beyond n bytes, which have all been read.
func (t *turn) keep(n int) {
	if t == nil || t.granted == nil {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.holders = slices.DeleteFunc(t.of.holders, func(h *turn) bool { return h == t })
	if spare := t.bytes - int64(n); spare > 0 {
		t.of.add(t, -spare)
		t.bytes -= spare
		t.of.grant()
	}
}

// end gives everything back, or leaves the queue. It may be called again.
func (t *turn) end() {
	defer t.cancel(nil)
	if t.granted == nil {
		return
	}
	r := t.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := slices.Index(r.queue, t); at >= 0 {
		r.queue = slices.Delete(r.queue, at, at+1)
	} else {
		r.add(t, -t.bytes)
		r.holders = slices.DeleteFunc(r.holders, func(h *turn) bool { return h == t })
		if t.user {
			delete(r.busy, t.owner)
		}
	}
	t.granted = nil
	r.grant()
}

// add adds to the bytes in use. The caller holds the lock.
func (r *reading) add(t *turn, n int64) {
	r.used += n
	if t.user {
		r.private += n
	}
	r.peak = max(r.peak, r.used)
}

// grant grants the turns of the queue that fit, in order. A turn that does not fit holds up those
// behind it, of users those of users only: else a large answer would never have its turn. A user
// whose answer is being read holds up nobody else. The caller holds the lock.
func (r *reading) grant() {
	full := false // for users
	var waiting []*turn
	for i, t := range r.queue {
		held := t.user && (full || r.busy[t.owner])
		if !held && r.used+t.bytes > r.limit {
			waiting = append(waiting, r.queue[i:]...)
			break
		}
		if !held && t.user && r.private+t.bytes > t.most() {
			held, full = true, true
		}
		if held {
			waiting = append(waiting, t)
			continue
		}
		if r.add(t, t.bytes); t.user {
			r.busy[t.owner] = true
		}
		t.since, r.holders = time.Now(), append(r.holders, t)
		close(t.granted)
	}
	r.queue = waiting
}

// parsing bounds the answers that are parsed at the same time. A small file may hold 100,000
// entries, and takes a hundred times as much memory until they are judged. It takes some
// milliseconds.
type parsing struct{ server, users semaphore.Semaphore }

func newParsing() parsing {
	return parsing{make(semaphore.Semaphore, 2), make(semaphore.Semaphore, 1)}
}

// enter waits until an answer of a source may be parsed. A reader may hold a turn in the meantime,
// because a parser waits for nothing. leave ends it. Errors are faults, or ctx's.
func (p parsing) enter(ctx context.Context, source svc.SourceKey) (leave func(), err error) {
	slots := p.server
	if source.Scope == svc.ScopePersonal {
		slots = p.users
	}
	// A reader that was too slow and has read all is admitted immediately.
	if leave, err = slots.Acquire(ctx); err != nil {
		err = explain(ctx, "", err)
	}
	return leave, err
}
