package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

type claimEvents = func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error)

// claims returns a fault in ClaimEvents.
func claims(fault func(claim claimEvents) claimEvents) func(*store) {
	return func(s *store) { s.claimEvents = fault(s.FullStore.ClaimEvents) }
}

// claimsOf returns a fault in each event that ClaimEvents returns.
func claimsOf(fault func(*svc.Event)) func(*store) {
	return claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			events, err := claim(ctx, now, until, limit)
			for i := range events {
				fault(&events[i])
			}
			return events, err
		}
	})
}

var outboxFaults = map[string]func(*store){
	"events are claimed newest first": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			events, err := claim(ctx, now, until, limit)
			slices.Reverse(events)
			return events, err
		}
	}),
	"all events are claimed at once": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, _ int) ([]svc.Event, error) {
			return claim(ctx, now, until, 1000)
		}
	}),
	"claimed events can be claimed again": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, _ time.Time, limit int) ([]svc.Event, error) {
			return claim(ctx, now, now, limit)
		}
	}),
	"claims never end": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			return claim(ctx, now, until.Add(time.Hour), limit)
		}
	}),
	"events are read and claimed in two steps": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			events, err := claim(ctx, now, now, limit)
			if err == nil {
				time.Sleep(time.Millisecond)
				_, err = claim(ctx, now, until, limit)
			}
			return events, err
		}
	}),
	"an empty outbox is an error": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			events, err := claim(ctx, now, until, limit)
			if err == nil && len(events) == 0 {
				err = svc.ErrNotFound
			}
			return events, err
		}
	}),
	"deleting missing events is an error": func(s *store) {
		s.deleteEvents = func(ctx context.Context, ids []uuid.UUID) error {
			if slices.Contains(ids, newEvent(9).ID) {
				return svc.ErrNotFound
			}
			return s.FullStore.DeleteEvents(ctx, ids)
		}
	},
	"events are not deleted": func(s *store) {
		s.deleteEvents = func(ctx context.Context, _ []uuid.UUID) error { return ctx.Err() }
	},
	"an event raises the generation": func(s *store) {
		s.addEvents = func(ctx context.Context, events []svc.Event) error {
			if len(events) > 0 {
				if _, err := s.FullStore.KeepValue(ctx, events[0].ID.String(), nil); err != nil {
					return err
				}
			}
			return s.FullStore.AddEvents(ctx, events)
		}
	},
}
