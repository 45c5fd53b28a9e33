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
	ahead   = 16               // keys used before their revocation, so that each is in use by then
	since   = 6 * time.Second  // all keys are used for so long after the last revocation
	hope    = 30 * time.Second // the most time of that while one key is still valid
)

// watch is what readers see of keys that are revoked in order.
type watch struct {
	*site
	keys    []svc.IssuedKey
	watched []watched

	first, last atomic.Int64 // the first key not refused yet; the number of revoked keys
	ended       atomic.Int64 // the time when all were revoked; 0: not yet
	calls       atomic.Int64
	again       atomic.Int64 // keys accepted by a call that began after a refusal
}

// watched holds times of a key: the return of its revocation, its first refusal, and the start of
// the last accepted call. 0: not yet.
type watched struct{ revoked, refused, accepted atomic.Int64 }

// now returns the time in ns, on the clock that all processes of a machine share.
func now() int64 { return time.Now().UnixNano() }

func (w *watch) revoked(i int, at int64) {
	w.watched[i].revoked.Store(at)
	w.last.Store(int64(i + 1))
}

// read uses keys until some time after the last revocation: those under revocation, with a refused
// one now and then, and in the end all of them.
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
				return fmt.Errorf("key %d is still valid", first)
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

// advance moves on to the first key not refused yet.
func (w *watch) advance() {
	first := w.first.Load()
	next := first
	for next < int64(len(w.watched)) && w.watched[next].refused.Load() != 0 {
		next++
	}
	w.first.CompareAndSwap(first, next)
}

// use authenticates with a key and records the result.
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

// late returns the number of keys accepted by a call that began more than bound after the
// revocation had returned.
func (w *watch) late(bound time.Duration) (n int) {
	for i := range w.watched {
		if k := &w.watched[i]; k.accepted.Load() > k.revoked.Load()+int64(bound) {
			n++
		}
	}
	return n
}

// latencies returns the times from the return of a revocation to the first refusal, and to the
// start of the last accepted call, both in ascending order. An earlier time counts as 0.
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
