package memstore

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/outbox"
)

// outboxEvent is an event in the outbox.
type outboxEvent struct {
	svc.Event
	claimedUntil time.Time
}

// AddEvents implements [svc.OutboxStore].
func (s *Store) AddEvents(ctx context.Context, events []svc.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, event := range events {
		if _, there := s.outbox[event.ID]; !there {
			put(s, s.outbox, event.ID, outboxEvent{Event: cloneEvent(event)})
		}
	}
	return nil
}

// ClaimEvents implements [svc.OutboxStore].
func (s *Store) ClaimEvents(
	ctx context.Context, now, until time.Time, limit int,
) ([]svc.Event, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	longest := outbox.Longest(until)
	free := sortedRows(s.outbox, func(event outboxEvent) bool {
		return !event.claimedUntil.After(now) || event.claimedUntil.After(longest)
	}, func(a, b outboxEvent) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	claimed := first(free, limit, func(event outboxEvent) svc.Event {
		return cloneEvent(event.Event)
	})
	for _, event := range claimed {
		kept := s.outbox[event.ID]
		kept.claimedUntil = until
		s.outbox[event.ID] = kept
	}
	return claimed, nil
}

// CountEvents implements [svc.StatsStore].
func (s *Store) CountEvents(ctx context.Context, most int) (int, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return min(len(s.outbox), most), nil
}

// Hears implements [svc.StatsStore]: there is no other process.
func (s *Store) Hears() bool { return false }

// DeleteEvents implements [svc.OutboxStore].
func (s *Store) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, id := range ids {
		drop(s, s.outbox, id)
	}
	return nil
}
