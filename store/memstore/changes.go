package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// remembered is how many generations are remembered at least; up to twice as many are.
const remembered = 1000

// patience is how long [Store.AwaitChange] waits.
const patience = time.Second

// changed counts the generation up for a mutation of those targets. The caller holds the lock.
func (s *Store) changed(targets ...svc.Target) {
	s.generation++
	s.changes = append(s.changes, slices.Clone(targets))
	if len(s.changes) == 2*remembered {
		s.changes = slices.Clone(s.changes[remembered:])
	}
	close(s.next)
	s.next = make(chan struct{})
}

// Changes implements [svc.ChangeStore].
func (s *Store) Changes(ctx context.Context, since int64) (svc.Changes, error) {
	if err := s.lock(ctx); err != nil {
		return svc.Changes{}, err
	}
	defer s.mu.Unlock()
	changes := svc.Changes{Generation: s.generation}
	missed := s.generation - since
	if missed < 0 || missed > int64(len(s.changes)) {
		changes.Reset = true
		return changes, nil
	}
	changes.Targets = slices.Concat(s.changes[len(s.changes)-int(missed):]...)
	return changes, nil
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
