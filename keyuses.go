package svc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc/internal/tasks"
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
	waiting map[string]keyUse // by key
}

// keyUse is a use, and what is found at it.
type keyUse struct {
	KeyUse
	anew *newHash // nil: the hash stays
}

// newHash is a key hashed under the first pepper.
type newHash struct {
	holder    Identity
	old, hash [sha256.Size]byte
}

// add keeps a use, unless there are too many. Of two of one key the later time is kept.
func (u *keyUses) add(use keyUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting == nil {
		u.waiting = map[string]keyUse{}
	}
	other, there := u.waiting[use.ID]
	if !there && len(u.waiting) >= keptUses {
		return
	}
	if other.At.After(use.At) {
		use.At = other.At
	}
	use.anew = cmp.Or(use.anew, other.anew)
	u.waiting[use.ID] = use
}

// moves reports whether a key waits to be hashed again, or has no room to.
func (u *keyUses) moves(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	use, there := u.waiting[id]
	return use.anew != nil || !there && len(u.waiting) >= keptUses
}

// take empties the list.
func (u *keyUses) take() []keyUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	uses := slices.Collect(maps.Values(u.waiting))
	clear(u.waiting)
	return uses
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// noteUse notes that a key was accepted: the first time in a minute, and not in a transaction of the host. A key under an
// older pepper, or from before rows were sealed, is hashed again under the first one: at its first use, whatever the minute,
// because its pepper may be retired in the next.
func (s *Service) noteUse(ring *keyring, c claim, key keyCopy, now time.Time) {
	if s.copies == nil {
		return
	}
	minute, first := minuteOf(now), ring.peppers[0]
	noted := minute <= key.used || !s.copies.keys.use(idOf(c.ID), minute)
	moves := key.pepper != 0 || key.unsealed && first.sealKey != nil
	if noted && (!moves || s.uses.moves(c.ID)) {
		return
	}
	use := keyUse{KeyUse: KeyUse{ID: c.ID, At: time.Unix(minute*60, 0).UTC()}}
	if moves {
		use.anew = &newHash{holder: key.holder.Identity, old: key.hash, hash: first.hash(key.holder.Kind, c.Token)}
	}
	s.uses.add(use)
	s.writeUses()
}

// flush writes uses now and then until ctx ends, and what is left then.
func (s *Service) flush(ctx context.Context) {
	tick := time.NewTicker(useFlush)
	defer tick.Stop()
	for ended := false; !ended; {
		tasks.Wait(ctx, tick.C)
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

func (s *Service) writeBatch(ctx context.Context, batch []keyUse) error {
	ctx, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	uses := make([]KeyUse, len(batch))
	for i, use := range batch {
		uses[i] = use.KeyUse
	}
	if err := s.store.UseAPIKeys(ctx, uses); err != nil {
		return err
	}
	if !slices.ContainsFunc(batch, func(use keyUse) bool { return use.anew != nil }) {
		return nil
	}
	if err := s.keepTags(ctx); err != nil {
		return err
	}
	for _, use := range batch {
		if err := s.hashAnew(ctx, use); err != nil {
			return err
		}
	}
	return nil
}

// hashAnew writes the new hash of a key, unless it has another one by now, or its row was changed by others than this service.
func (s *Service) hashAnew(ctx context.Context, use keyUse) error {
	if use.anew == nil {
		return nil
	}
	err := s.store.ChangeAPIKey(ctx, use.anew.holder, use.ID, func(key *APIKey) (bool, error) {
		if !bytes.Equal(key.Hash, use.anew.old[:]) || !s.keys.sealed(*key) {
			return false, nil
		}
		key.Hash, key.Pepper = use.anew.hash[:], s.keys.peppers[0].version
		s.keys.seal(key)
		return true, nil
	})
	s.copies.keys.Drop(idOf(use.ID)) // a copy of what it was would be hashed anew each minute
	if errors.Is(err, ErrNotFound) { // revoked
		return nil
	}
	return err
}
