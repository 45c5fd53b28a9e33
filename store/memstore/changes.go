package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// minGenerations is the minimum number of generations that Changes can return; the maximum is twice
// that.
const minGenerations = 1000

// patience is how long [Store.AwaitChange] waits for a change.
const patience = time.Second

// recordChange raises the generation for a mutation of targets. The caller holds the lock.
func (s *Store) recordChange(targets ...svc.Target) {
	s.record(svc.StoreChanges{Targets: slices.Clone(targets)})
}

// record raises the generation for a mutation. The caller holds the lock.
func (s *Store) record(change svc.StoreChanges) {
	s.generation++
	s.changes = append(s.changes, change)
	if len(s.changes) == 2*minGenerations {
		s.changes = slices.Clone(s.changes[minGenerations:])
	}
	close(s.next)
	s.next = make(chan struct{})
}

// Changes implements [svc.ChangeStore].
func (s *Store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	if err := s.lock(ctx); err != nil {
		return svc.StoreChanges{}, err
	}
	defer s.mu.Unlock()
	return s.changesSince(since), nil
}

// changesSince returns what Changes returns. The caller holds the lock.
func (s *Store) changesSince(since int64) svc.StoreChanges {
	changes := svc.StoreChanges{Generation: s.generation}
	missed := s.generation - since
	if missed < 0 || missed > int64(len(s.changes)) {
		changes.Reset = true
		return changes
	}
	for _, change := range s.changes[len(s.changes)-int(missed):] {
		changes.Targets = append(changes.Targets, change.Targets...)
		changes.Renamed = append(changes.Renamed, change.Renamed...)
	}
	return changes
}

// AwaitChange implements [svc.ChangeStore].
func (s *Store) AwaitChange(ctx context.Context, since int64) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	generation, next := s.generation, s.next
	s.mu.Unlock()
	if generation != since {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-next:
	case <-late.C:
	}
	return nil
}

// Look implements [svc.FreshnessStore]. AwaitChange returns with the commit, so there is nothing to
// gain.
func (s *Store) Look(context.Context) (uint64, error) { return 0, nil }
