package svc

import (
	"context"
	"time"

	"github.com/extsvc/svc/internal/tasks"
	"github.com/google/uuid"
)

// OutboxStore keeps events whose mutations belong to a transaction of the host, until they are delivered.
type OutboxStore interface {
	// AddEvents keeps events. It is no mutation: the generation stays.
	AddEvents(ctx context.Context, events []Event) error
	// ClaimEvents returns up to limit events that are nobody's at the time now, oldest (by ID) first, and makes them the
	// caller's until the time until. Two callers never have one event at once. Where there are none, nothing
	// is written.
	ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]Event, error)
	// DeleteEvents forgets events that were delivered; those that are gone already are no error.
	DeleteEvents(ctx context.Context, ids []uuid.UUID) error
}

// The delivery of outbox events.
const (
	outboxPoll  = time.Second      // how long an event waits for it at most
	outboxClaim = 30 * time.Second // how long a process has for a batch before another one may try
	outboxBatch = 100

	outboxDelete = 5 * time.Second // for forgetting a batch
)

// WithStore returns a Service that works on store, which belongs to one transaction of the host
// (package sqlstore has one: Tx), so that a key is issued if and only if the host's own row is
// written. What it does is seen by others after the host's commit, and as if another process had
// done it. Its events go into the outbox of the same transaction; the Service that it was made from
// delivers them after the commit, within about a second, at least once: an [Event]'s ID tells a
// second delivery. The copy ends with the transaction and needs no Close. When a method of it fails
// with anything but a refusal ([CodeInvalid], [CodeUnauthenticated], [CodeForbidden],
// [CodeNotFound], [CodeExists], [CodeLimit], [CodeEdited], [CodePrecondition], [CodeSourceMoved],
// [CodeKeyReused]), roll the transaction back.
func (s *Service) WithStore(store Store) *Service {
	return &Service{
		config: s.config, store: store, keys: s.keys, sealer: s.sealer,
		completeKeys: s.completeKeys, compiler: s.compiler, checks: s.checks,
	}
}

// deliver hands outbox events to the host until ctx ends.
func (s *Service) deliver(ctx context.Context) {
	tick := time.NewTicker(outboxPoll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.deliverOnce(ctx); err != nil && ctx.Err() == nil {
			s.config.Logger.WarnContext(ctx, "svc: events of the outbox wait", "error", err)
		}
		tasks.Wait(ctx, tick.C)
	}
}

func (s *Service) deliverOnce(ctx context.Context) error {
	for {
		now := s.now()
		events, err := s.store.ClaimEvents(ctx, now, now.Add(outboxClaim), outboxBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		ids := make([]uuid.UUID, len(events))
		for i, event := range events {
			s.tell(ctx, event)
			ids[i] = event.ID
		}
		if err := s.deleteEvents(ctx, ids); err != nil {
			return err
		}
	}
}

// deleteEvents forgets events that were delivered, those of the last batch before the end, too: they would come again.
func (s *Service) deleteEvents(ctx context.Context, ids []uuid.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outboxDelete)
	defer cancel()
	return s.store.DeleteEvents(ctx, ids)
}
