package svc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/token"
)

// What is kept of the use of keys.
const (
	useFlush   = 10 * time.Second // how long a use waits in memory at most, while the store can be reached
	useBatch   = 256              // how many are written at once
	keptUses   = 1 << 16          // how many wait at most: what comes then is noted again in the next minute
	useTimeout = 5 * time.Second  // for writing a batch
)

// keyUses are uses of keys that are not written yet. Its zero value works.
type keyUses struct {
	mu      sync.Mutex
	waiting map[string]KeyUse // by key
}

// add keeps a use, unless there are too many. Of two of one key the later time is kept, and the hash of the one that came
// last: where that has none, somebody else was faster.
func (u *keyUses) add(use KeyUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting == nil {
		u.waiting = map[string]KeyUse{}
	}
	other, there := u.waiting[use.ID]
	if !there && len(u.waiting) >= keptUses {
		return
	}
	if other.At.After(use.At) {
		use.At = other.At
	}
	u.waiting[use.ID] = use
}

// take empties the list.
func (u *keyUses) take() []KeyUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	uses := slices.Collect(maps.Values(u.waiting))
	clear(u.waiting)
	return uses
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// noteUse notes that a key was accepted: the first time in a minute, and not in a transaction of the host. One that was hashed under
// an older pepper is hashed anew under the first.
func (s *Service) noteUse(ring *keyring, kind Kind, t token.Token, key keyCopy, now time.Time) {
	if s.copies == nil {
		return
	}
	minute, noted := minuteOf(now), key.used.Load()
	if minute <= noted || !key.used.CompareAndSwap(noted, minute) {
		return
	}
	use := KeyUse{ID: t.ID, At: time.Unix(minute*60, 0).UTC()}
	if first := ring.peppers[0]; key.pepper != first.version {
		hash := first.hash(kind, t)
		use.Hash, use.Pepper = hash[:], first.version
	}
	s.uses.add(use)
	s.writeUses()
}

// flush writes uses now and then until ctx ends, and what is left then.
func (s *Service) flush(ctx context.Context) {
	tick := time.NewTicker(useFlush)
	defer tick.Stop()
	for ended := false; !ended; {
		wait(ctx, tick.C)
		ended = ctx.Err() != nil // what was noted before the end is written
		s.flushOnce(context.WithoutCancel(ctx))
	}
}

// flushOnce writes what waits. What cannot be written waits on.
func (s *Service) flushOnce(ctx context.Context) {
	uses := s.uses.take()
	for len(uses) > 0 {
		n := min(len(uses), useBatch)
		if err := s.writeBatch(ctx, uses[:n]); err != nil {
			s.config.Logger.WarnContext(ctx, "svc: when API keys were used last is not kept yet", "error", err)
			for _, use := range uses {
				s.uses.add(use)
			}
			return
		}
		uses = uses[n:]
	}
}

func (s *Service) writeBatch(ctx context.Context, batch []KeyUse) error {
	ctx, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	if slices.ContainsFunc(batch, func(use KeyUse) bool { return use.Hash != nil }) {
		if err := s.keepTags(ctx); err != nil {
			return err
		}
	}
	if err := s.store.UseAPIKeys(ctx, batch); err != nil {
		return err
	}
	for _, use := range batch {
		if use.Hash != nil { // a copy of what it was would be hashed anew each minute
			s.copies.keys.Drop(idOf(use.ID))
		}
	}
	return nil
}
