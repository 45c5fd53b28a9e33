//go:build planted

package storetest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

type claimEvents = func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error)

// claims returns a fault in ClaimEvents.
func claims(fault func(claim claimEvents) claimEvents) func(*store) {
	return func(s *store) { s.does["ClaimEvents"] = fault(s.FullStore.ClaimEvents) }
}

var outboxFaults = map[string]func(*store){
	"claimed events can be claimed again": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, _ time.Time, limit int) ([]svc.Event, error) {
			return claim(ctx, now, now, limit)
		}
	}),
	"claims from before the clock went back count": claims(func(claim claimEvents) claimEvents {
		var latest atomic.Int64
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			if now.Add(time.Minute).UnixMicro() < latest.Load() {
				return nil, nil
			}
			latest.Store(until.UnixMicro())
			return claim(ctx, now, until, limit)
		}
	}),
	"claims of clocks that differ do not count": claims(func(claim claimEvents) claimEvents {
		return func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
			return claim(ctx, now, until.Add(-time.Minute), limit)
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
		s.does["DeleteEvents"] = func(ctx context.Context, ids []uuid.UUID) error {
			if slices.Contains(ids, newEvent(9).ID) {
				return svc.ErrNotFound
			}
			return s.FullStore.DeleteEvents(ctx, ids)
		}
	},
	"two concurrent KeepAnswer calls succeed": func(s *store) {
		s.does["KeepAnswer"] = func(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
			err := s.FullStore.KeepAnswer(ctx, answer, now)
			if errors.Is(err, svc.ErrExists) {
				if kept, read := s.FullStore.Answer(ctx, answer.Key, now); read == nil && kept.ExpiresAt.Equal(answer.ExpiresAt) {
					return nil
				}
			}
			return err
		}
	},
}
