package bench_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

const (
	readers = 16
	ahead   = 16               // how many keys are used that are still to be revoked, so that each of them is in use by then
	since   = 6 * time.Second  // how long all of the keys are used when all are revoked
	hope    = 30 * time.Second // and how long at most, while one is good still
)

// watch is what readers see of keys that are being revoked in order.
type watch struct {
	*site
	keys    []svc.IssuedKey
	watched []watched

	first, last atomic.Int64 // the first key that was not refused yet, and how many are revoked
	ended       atomic.Int64 // when all were; 0: not yet
	calls       atomic.Int64
	again       atomic.Int64 // how often a key was accepted by a call that began after another one was refused
}

// watched is what is known of a key: when its revocation had returned, when it was refused for the first time, and when the last
// call began that was accepted; 0: not yet.
type watched struct{ revoked, refused, accepted atomic.Int64 }

// now is the time, in ns, on the clock that all processes of a machine share.
func now() int64 { return time.Now().UnixNano() }

func (w *watch) revoked(i int, at int64) {
	w.watched[i].revoked.Store(at)
	w.last.Store(int64(i + 1))
}

// read uses keys until all have been revoked for some time: those that are being revoked just now, and between them one that was
// refused before; in the end, all of them.
func (w *watch) read(ctx context.Context, reader int) error {
	past := reader
	for {
		ended := w.ended.Load()
		first, last := int(w.first.Load()), min(int(w.last.Load())+ahead, len(w.keys))
		if ended != 0 {
			switch after := time.Duration(now() - ended); {
			case first == len(w.keys) && after > since:
				return nil
			case after > hope:
				return fmt.Errorf("key %d is good still", first)
			}
			first = 0
		}
		for n := range last - first {
			if err := w.use(ctx, first+(n+reader*(last-first)/readers)%(last-first)); err != nil {
				return err
			}
		}
		if first > 0 {
			past = (past + readers) % first
			if err := w.use(ctx, past); err != nil {
				return err
			}
		}
		w.advance()
		time.Sleep(*rest)
	}
}

// advance moves on to the first key that was not refused yet.
func (w *watch) advance() {
	first := w.first.Load()
	next := first
	for next < int64(len(w.watched)) && w.watched[next].refused.Load() != 0 {
		next++
	}
	w.first.CompareAndSwap(first, next)
}

// use authenticates with a key, and compares with what is known of it.
func (w *watch) use(ctx context.Context, i int) error {
	k := &w.watched[i]
	begun := now()
	_, err := w.service.Authenticate(ctx, string(w.keys[i].Key))
	w.calls.Add(1)
	switch {
	case svc.ErrorCode(err) == svc.CodeUnauthenticated:
		k.refused.CompareAndSwap(0, now())
		return nil
	case err != nil:
		return err
	}
	if refused := k.refused.Load(); refused != 0 && begun > refused {
		w.again.Add(1)
	}
	for last := k.accepted.Load(); begun > last && !k.accepted.CompareAndSwap(last, begun); {
		last = k.accepted.Load()
	}
	return nil
}

// late is how many keys were accepted by a call that began later than that after the revocation had returned.
func (w *watch) late(bound time.Duration) (n int) {
	for i := range w.watched {
		if k := &w.watched[i]; k.accepted.Load() > k.revoked.Load()+int64(bound) {
			n++
		}
	}
	return n
}

// latencies are how long after the revocation had returned a key was refused for the first time, and how long after it the last call
// began that accepted it, both in ascending order. What was before it counts as none.
func (w *watch) latencies() (refused, accepted []time.Duration) {
	for i := range w.watched {
		k := &w.watched[i]
		refused = append(refused, max(0, time.Duration(k.refused.Load()-k.revoked.Load())))
		accepted = append(accepted, max(0, time.Duration(k.accepted.Load()-k.revoked.Load())))
	}
	slices.Sort(refused)
	slices.Sort(accepted)
	return refused, accepted
}
