// Package fairqueue shares what is scarce, as connections and processors are, among owners: a storm
// of one does not slow down the others.
package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Rules say how many turns there are, and how many of them one owner or flow may have. An owner has
// flows, in which callers wait for each other. Another owner is busy when it wanted a turn within
// the last second.
type Rules struct {
	Turns int // at a time, of all owners; 0: any number
	Alone int // of one flow at a time, while no other owner is busy; 0: all Turns
	Share int // of one flow at a time, while another owner is busy; 0: as Alone
	// PerSecond is how many turns of one owner begin in a second, while another owner is busy. A
	// caller that comes while its owner has no other one need not wait. 0: any number.
	PerSecond int
	Always    bool // PerSecond counts every turn, also while no other owner is busy
}

// Queue gives turns. A free one goes to the owners that wait, one after the other, of one owner to
// its flows in the same way, and of one flow to the callers in the order in which they came. So an
// owner with a thousand callers delays another one by a turn. Use [New]. It is safe for concurrent
// use.
type Queue struct {
	rules Rules
	gap   time.Duration // between the beginnings of turns; 0: none
	long  time.Duration // a turn that lets its flow have one more than its share

	mu     sync.Mutex
	free   int
	latest [2]entrance       // of two owners, the last one first
	owners map[string]*owner // that are in a flow
	flows  map[Flow]*flow    // with a turn or a caller that waits
	order  []*owner          // that wait, the next one first
	alarm  *time.Timer       // gives turns when an owner is no longer busy, or its time has come
}

// Flow names a flow: an owner, and what tells apart its flows.
type Flow struct{ Owner, Kind, ID string }

type owner struct {
	name             string
	next             time.Time // when the next turn may begin, by the gap
	running, waiting int
	order            []*flow // that wait, the next one first
}

type flow struct {
	name    Flow
	of      *owner
	limit   int         // turns at a time
	running []time.Time // when its turns began, the oldest first
	waiting []*waiting
}

type waiting struct {
	turn  chan struct{} // closed with the turn
	began time.Time     // of the turn
}

// entrance is when an owner last wanted a turn.
type entrance struct {
	owner string
	at    time.Time
}

const (
	unlimited = math.MaxInt32 // turns
	// busy is how long after an entrance an owner counts as busy.
	busy = time.Second
	// long is a long turn. A large bundle takes as long, and other callers of its owner go on.
	long = 100 * time.Millisecond
	// look is when a Queue with callers that wait looks again, at the latest.
	look = 100 * time.Millisecond
	// burst is the longest time without a turn that an owner may make up for.
	burst = 20 * time.Millisecond
)

// New returns a Queue with these rules.
func New(rules Rules) *Queue {
	r := &Queue{rules: rules, long: long, owners: map[string]*owner{}, flows: map[Flow]*flow{}}
	if rules.PerSecond > 0 {
		r.gap = time.Second / time.Duration(rules.PerSecond)
	}
	r.rules.Turns = cmp.Or(rules.Turns, unlimited)
	r.rules.Alone = cmp.Or(rules.Alone, r.rules.Turns)
	r.rules.Share = cmp.Or(rules.Share, r.rules.Alone)
	r.free = r.rules.Turns
	return r
}

// OfProcessors returns a Queue with a turn for each processor.
func OfProcessors() *Queue { return New(Rules{Turns: runtime.GOMAXPROCS(0)}) }

// Patience is how long a request waits for its turn.
const Patience = 2 * time.Second

// ErrLate is the error of a call that has waited for as long as it may.
var ErrLate = errors.New("too many others wait")

// Acquire waits for a turn of a flow, which has at most limit at a time; 0 is no limit. leave ends
// the turn. Acquire waits at most for longest, and then returns ErrLate; 0 is no limit. A nil Queue
// gives a turn immediately.
func (r *Queue) Acquire(
	ctx context.Context, name Flow, limit int, longest time.Duration,
) (leave func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	r.mu.Lock()
	now := time.Now()
	r.note(name.Owner, now)
	l := r.flow(name, limit, now)
	if l.of.waiting == 0 && !r.early(l.of, now) && r.hasRoom(l, now) {
		r.start(l, now)
		r.mu.Unlock()
		return func() { r.leave(l, now) }, nil
	}
	w := &waiting{turn: make(chan struct{})}
	r.add(l, w)
	r.give(now)
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
		err = ErrLate
	}
	if !r.withdraw(l, w) { // the turn came in the meantime
		leave = func() { r.leave(l, w.began) }
		if err == ErrLate {
			return leave, nil
		}
		leave()
	}
	return nil, err
}

// Wait waits for a turn as Acquire does, at most for Patience, and then goes on without one. It is
// for work that costs no more than its refusal. leave ends the turn.
func (r *Queue) Wait(ctx context.Context, name Flow) (leave func()) {
	leave, err := r.Acquire(ctx, name, 0, Patience)
	if err != nil {
		return func() {}
	}
	return leave
}

// note notes an entrance. The caller holds the lock.
func (r *Queue) note(owner string, now time.Time) {
	if r.latest[0].owner != owner {
		r.latest[1] = r.latest[0]
	}
	r.latest[0] = entrance{owner, now}
}

// Contended reports whether an owner other than this one is busy.
func (r *Queue) Contended(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crowded(owner, time.Now())
}

// crowded is Contended for a caller that holds the lock.
func (r *Queue) crowded(owner string, now time.Time) bool {
	other := r.latest[0]
	if other.owner == owner {
		other = r.latest[1]
	}
	return now.Sub(other.at) < busy
}

// flow returns the flow of that name. The caller holds the lock.
func (r *Queue) flow(name Flow, limit int, now time.Time) *flow {
	l := r.flows[name]
	if l == nil {
		of := r.owners[name.Owner]
		if of == nil {
			of = &owner{name: name.Owner, next: now}
			r.owners[name.Owner] = of
		}
		l = &flow{name: name, of: of}
		r.flows[name] = l
	}
	l.limit = cmp.Or(limit, unlimited)
	return l
}

// early reports whether the time of an owner has not come. The caller holds the lock.
func (r *Queue) early(o *owner, now time.Time) bool {
	overlaps := o.running+o.waiting > 0
	return now.Before(o.next) && (r.rules.Always || overlaps && r.crowded(o.name, now))
}

// hasRoom reports whether one more turn of a flow is free. The caller holds the lock.
func (r *Queue) hasRoom(l *flow, now time.Time) bool {
	most := r.rules.Alone
	if r.crowded(l.name.Owner, now) {
		most = r.rules.Share
		if len(l.running) > 0 && now.Sub(l.running[0]) > r.long {
			most++
		}
	}
	return r.free > 0 && len(l.running) < min(most, l.limit)
}

// start counts a turn. The caller holds the lock.
func (r *Queue) start(l *flow, now time.Time) {
	r.free--
	l.running = append(l.running, now)
	l.of.running++
	unused := min(max(now.Sub(l.of.next), 0), burst)
	l.of.next = now.Add(r.gap - unused)
}

// leave ends a turn, and gives turns to callers that wait.
func (r *Queue) leave(l *flow, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free++
	l.running = without(l.running, began) // of two that began at the same time, either one
	l.of.running--
	now := time.Now()
	r.forget(l, now)
	if len(r.order) > 0 {
		r.give(now)
	}
}

// give gives the free turns to callers that wait. The caller holds the lock.
func (r *Queue) give(now time.Time) {
	for i := 0; r.free > 0 && i < len(r.order); {
		l := r.next(r.order[i], now)
		if l == nil {
			i++
			continue
		}
		w := l.waiting[0]
		l.of.order, r.order = toEnd(l.of.order, l), toEnd(r.order, l.of) // behind the others
		r.remove(l, 0)
		w.began = now
		r.start(l, now)
		close(w.turn)
	}
	r.watch(now)
}

// next returns the flow of an owner that has the next turn. Nil: none may have one.
func (r *Queue) next(o *owner, now time.Time) *flow {
	if r.early(o, now) {
		return nil
	}
	for _, l := range o.order {
		if r.hasRoom(l, now) {
			return l
		}
	}
	return nil
}

func without[T comparable](list []T, one T) []T {
	i := slices.Index(list, one)
	return slices.Delete(list, i, i+1)
}

func toEnd[T comparable](list []T, one T) []T { return append(without(list, one), one) }

// watch makes a round look again when callers wait although turns are free: others are no longer
// busy after a while, a turn is long, or the time of an owner has come. The caller holds the lock.
func (r *Queue) watch(now time.Time) {
	if r.free == 0 || len(r.order) == 0 {
		return
	}
	wait := look
	for _, o := range r.order {
		if now.Before(o.next) {
			wait = min(wait, o.next.Sub(now))
		}
	}
	if r.alarm != nil {
		r.alarm.Reset(wait)
		return
	}
	r.alarm = time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.give(time.Now())
	})
}

// withdraw takes a caller out of its flow. false: it has a turn.
func (r *Queue) withdraw(l *flow, w *waiting) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		r.remove(l, i)
		r.forget(l, time.Now())
	}
	return i >= 0
}

// add adds a caller to its flow. The caller holds the lock.
func (r *Queue) add(l *flow, w *waiting) {
	if l.of.waiting == 0 {
		r.order = append(r.order, l.of)
	}
	if len(l.waiting) == 0 {
		l.of.order = append(l.of.order, l)
	}
	l.waiting = append(l.waiting, w)
	l.of.waiting++
}

// remove removes the caller at i from its flow. The caller holds the lock.
func (r *Queue) remove(l *flow, i int) {
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.of.waiting--
	if len(l.waiting) == 0 {
		l.of.order = without(l.of.order, l)
	}
	if l.of.waiting == 0 {
		r.order = without(r.order, l.of)
	}
}

// forget drops a flow that nobody is in, and its owner when nobody is in any flow. With Always it
// drops owners when their time has come. The caller holds the lock.
func (r *Queue) forget(l *flow, now time.Time) {
	if len(l.running) == 0 && len(l.waiting) == 0 {
		delete(r.flows, l.name)
	}
	if !r.rules.Always && l.of.running+l.of.waiting == 0 {
		delete(r.owners, l.of.name)
	}
	if r.rules.Always {
		maps.DeleteFunc(r.owners, func(_ string, o *owner) bool {
			return o.running+o.waiting == 0 && !now.Before(o.next)
		})
	}
}
