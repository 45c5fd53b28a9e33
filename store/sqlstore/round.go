package sqlstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Round gives turns to Stores that share connections or processors. A free turn goes to the Stores
// that wait, one after the other; the callers of one Store get it in the order in which they came.
// So a Store with a thousand callers delays another one by one turn.
//
// A Store that is alone may have all turns. While others are busy it has a share, at most half of
// the processors: its statements must leave the others time as well. Use [NewRound].
type Round struct {
	share int // turns of one Store at a time, while others are busy

	mu      sync.Mutex
	free    int
	latest  [2]entrance           // of two Stores, the last one first
	running map[string]int        // turns by Store
	waiting map[string][]*waiting // by Store
	order   []string              // the Stores that wait, the next one first
}

// entrance is when a Store last had or wanted a turn.
type entrance struct {
	who string
	at  time.Time
}

// busy is how long after an entrance a Store counts as busy.
const busy = time.Second

type waiting struct{ turn chan struct{} } // closed with the turn

// NewRound returns a Round of so many turns at a time, at least 1.
func NewRound(turns int) *Round {
	turns = max(1, turns)
	return &Round{
		share: max(1, min(turns, runtime.NumCPU())/2), free: turns,
		running: map[string]int{}, waiting: map[string][]*waiting{},
	}
}

// enter waits for a turn. leave ends it.
func (r *Round) enter(ctx context.Context, who string) (leave func(), err error) {
	leave = func() { r.leave(who) }
	r.mu.Lock()
	r.note(who)
	if r.free > 0 && r.running[who] < r.most(who) {
		r.start(who)
		r.mu.Unlock()
		return leave, nil
	}
	w := &waiting{make(chan struct{})}
	if len(r.waiting[who]) == 0 {
		r.order = append(r.order, who)
	}
	r.waiting[who] = append(r.waiting[who], w)
	r.mu.Unlock()
	select {
	case <-w.turn:
		return leave, nil
	case <-ctx.Done():
	}
	if !r.withdraw(who, w) {
		r.leave(who) // the turn came meanwhile
	}
	return nil, ctx.Err()
}

// note notes an entrance. The caller holds the lock.
func (r *Round) note(who string) {
	if r.latest[0].who != who {
		r.latest[1] = r.latest[0]
	}
	r.latest[0] = entrance{who, time.Now()}
}

// most returns how many turns a Store may have now. The caller holds the lock.
func (r *Round) most(who string) int {
	if r.crowded(who) {
		return r.share
	}
	return r.free + r.running[who]
}

// Crowded reports whether a Store other than who is busy.
func (r *Round) Crowded(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crowded(who)
}

// crowded is Crowded for a caller that holds the lock.
func (r *Round) crowded(who string) bool {
	other := r.latest[0]
	if other.who == who {
		other = r.latest[1]
	}
	return time.Since(other.at) < busy
}

// start counts a turn. The caller holds the lock.
func (r *Round) start(who string) {
	r.free--
	r.running[who]++
}

// withdraw takes a caller out of the queue. false: it has a turn.
func (r *Round) withdraw(who string, w *waiting) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting[who], w)
	if i >= 0 {
		r.shorten(who, i)
	}
	return i >= 0
}

// shorten removes the caller at i from the queue of a Store. The caller holds the lock.
func (r *Round) shorten(who string, i int) {
	list := r.waiting[who]
	if i == 0 {
		list[0], list = nil, list[1:]
	} else {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) > 0 {
		r.waiting[who] = list
		return
	}
	delete(r.waiting, who)
	i = slices.Index(r.order, who)
	r.order = slices.Delete(r.order, i, i+1)
}

// leave ends a turn, and gives turns to callers that wait.
func (r *Round) leave(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free++
	if r.running[who]--; r.running[who] == 0 {
		delete(r.running, who)
	}
	for i := 0; r.free > 0 && i < len(r.order); {
		next := r.order[i]
		if r.running[next] >= r.most(next) {
			i++ // it has its share
			continue
		}
		first := r.waiting[next][0]
		r.order = append(slices.Delete(r.order, i, i+1), next) // behind the others
		r.shorten(next, 0)
		r.start(next)
		close(first.turn)
	}
}
