package sqlstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

// Turns are what Stores take that share connections or a disk: a call of the database takes one.
// Use [NewTurns].
type Turns struct {
	calls     *round
	questions *round // of the followers: they wait for no call
}

// NewTurns returns Turns for so many calls at a time, at least 1, and one more for the followers of
// the Stores.
func NewTurns(calls int) *Turns { return &Turns{newRound(calls), newRound(1)} }

// round gives turns to Stores. A free turn goes to the lines that wait, one after the other; the
// callers of one line get it in the order in which they came. So a Store with a thousand callers
// delays another one by a turn.
//
// A Store that is alone may have all turns. While others are busy it has a share: its statements must
// leave the others time as well.
type round struct {
	share int // turns of one line at a time, while other Stores are busy

	mu     sync.Mutex
	free   int
	latest [2]entrance        // of two Stores, the last one first
	lines  map[lineName]*line // with a turn or a caller that waits
	order  []*line            // that wait, the next one first
	alarm  *time.Timer        // gives turns when Stores are no longer busy
}

// lineName names the callers that wait for each other. Those that read do not wait behind those that
// write, which may wait for a lock.
type lineName struct {
	store  string
	writes bool
}

type line struct {
	name    lineName
	limit   int         // turns at a time
	running []time.Time // when its turns began, the oldest first
	waiting []*waiting
}

type waiting struct {
	turn  chan struct{} // closed with the turn
	began time.Time     // of the turn
}

// entrance is when a Store last had or wanted a turn.
type entrance struct {
	store string
	at    time.Time
}

// busy is how long after an entrance a Store counts as busy.
const busy = time.Second

// long is a turn beside which its line may have one more than its share. A large bundle takes long,
// and other callers of its Store go on.
const long = 100 * time.Millisecond

func newRound(turns int) *round {
	turns = max(1, turns)
	return &round{
		share: max(1, min(turns, runtime.GOMAXPROCS(0))/2), free: turns, lines: map[lineName]*line{},
	}
}

// errBusy is the error of a call that has waited for a turn for too long.
var errBusy = fmt.Errorf("%w: too many calls wait for the database", svc.ErrUnavailable)

// enter waits for a turn of a line, which has at most limit at a time. leave ends the turn. It waits
// at most for longest; 0 is no limit.
func (r *round) enter(
	ctx context.Context, name lineName, limit int, longest time.Duration,
) (leave func(), err error) {
	r.mu.Lock()
	r.note(name.store)
	l := r.line(name, limit)
	if len(l.waiting) == 0 && r.may(l) {
		began := r.start(l)
		r.mu.Unlock()
		return func() { r.leave(l, began) }, nil
	}
	w := &waiting{turn: make(chan struct{})}
	if len(l.waiting) == 0 {
		r.order = append(r.order, l)
	}
	l.waiting = append(l.waiting, w)
	r.watch()
	r.mu.Unlock()

	var late <-chan time.Time
	if longest > 0 {
		timer := time.NewTimer(longest)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.turn:
		return func() { r.leave(l, w.began) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-late:
		err = fmt.Errorf("%w for %s", errBusy, longest)
	}
	if !r.withdraw(l, w) {
		r.leave(l, w.began) // the turn came meanwhile
	}
	return nil, err
}

// note notes an entrance. The caller holds the lock.
func (r *round) note(store string) {
	if r.latest[0].store != store {
		r.latest[1] = r.latest[0]
	}
	r.latest[0] = entrance{store, time.Now()}
}

// crowded reports whether a Store other than this one is busy.
func (r *round) crowded(store string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.othersThan(store)
}

// othersThan is crowded for a caller that holds the lock.
func (r *round) othersThan(store string) bool {
	other := r.latest[0]
	if other.store == store {
		other = r.latest[1]
	}
	return time.Since(other.at) < busy
}

// line returns the line of that name. The caller holds the lock.
func (r *round) line(name lineName, limit int) *line {
	l := r.lines[name]
	if l == nil {
		l = &line{name: name}
		r.lines[name] = l
	}
	l.limit = limit
	return l
}

// may reports whether a line may have one more turn. The caller holds the lock.
func (r *round) may(l *line) bool {
	most := l.limit
	if r.othersThan(l.name.store) {
		share := r.share
		if len(l.running) > 0 && time.Since(l.running[0]) > long {
			share++
		}
		most = min(most, share)
	}
	return r.free > 0 && len(l.running) < most
}

// start counts a turn, and returns when it began. The caller holds the lock.
func (r *round) start(l *line) (began time.Time) {
	r.free--
	began = time.Now()
	l.running = append(l.running, began)
	return began
}

// leave ends a turn, and gives turns to callers that wait.
func (r *round) leave(l *line, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free++
	i := slices.Index(l.running, began) // of two that began at once, either one
	l.running = slices.Delete(l.running, i, i+1)
	r.forget(l)
	r.give()
}

// give gives the free turns to callers that wait. The caller holds the lock.
func (r *round) give() {
	for i := 0; r.free > 0 && i < len(r.order); {
		l := r.order[i]
		if !r.may(l) {
			i++
			continue
		}
		first := l.waiting[0]
		r.order = append(slices.Delete(r.order, i, i+1), l) // behind the others
		first.began = r.start(l)
		r.remove(l, 0)
		close(first.turn)
	}
	r.watch()
}

// watch makes a round look again when callers wait although turns are free: after a while others are
// no longer busy, or a turn is long, without a word. The caller holds the lock.
func (r *round) watch() {
	if r.alarm != nil || r.free == 0 || len(r.order) == 0 {
		return
	}
	r.alarm = time.AfterFunc(long, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.alarm = nil
		r.give()
	})
}

// withdraw takes a caller out of its line. false: it has a turn.
func (r *round) withdraw(l *line, w *waiting) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		r.remove(l, i)
		r.forget(l)
	}
	return i >= 0
}

// remove removes the caller at i from its line. The caller holds the lock.
func (r *round) remove(l *line, i int) {
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if len(l.waiting) == 0 {
		l.waiting = nil
		i = slices.Index(r.order, l)
		r.order = slices.Delete(r.order, i, i+1)
	}
}

// forget drops a line that nobody is in. The caller holds the lock.
func (r *round) forget(l *line) {
	if len(l.running) == 0 && len(l.waiting) == 0 {
		delete(r.lines, l.name)
	}
}
