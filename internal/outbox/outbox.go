// Package outbox delivers events that wait in a store.
package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc/internal/background"
)

// All processes with a function for events deliver, each its own claims. When a process dies,
// another delivers its batch once claim is over. An event that takes longer than that may be
// delivered twice.
const (
	poll  = time.Second      // the longest wait of an event for its delivery
	claim = 30 * time.Second // the time of a process for a batch, before another may try
	most  = 100              // the most events of a batch
	usual = time.Second      // the time of a batch: the end of Run waits for it

	// DeleteTimeout is the time to delete a batch.
	DeleteTimeout = 5 * time.Second
)

// Store keeps the events, as an OutboxStore of package svc does.
type Store[E any] interface {
	ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]E, error)
	DeleteEvents(ctx context.Context, ids []uuid.UUID) error
}

// Delivery delivers the events of a Store. All fields are required.
type Delivery[E any] struct {
	Store Store[E]
	Now   func() time.Time
	Tell  func(ctx context.Context, event E) (told bool)
	ID    func(event E) uuid.UUID
	// Report is called before Run tries again: after the first failure, then once a minute, and with
	// nil when a try succeeds again.
	Report func(ctx context.Context, err error)
}

// Longest returns the latest end of a claim that counts for a caller who claims until the time
// until. Clocks differ by less than a minute, so a claim with a later end is from before a clock
// went back.
func Longest(until time.Time) time.Time { return until.Add(time.Minute) }

// Run hands events to Tell until ctx ends. It looks at intervals, because no feed of changes
// reports them: an event in the outbox is no mutation.
func (d Delivery[E]) Run(ctx context.Context) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var failing background.Failing
	for goesOn := true; goesOn; goesOn = background.Wait(ctx, tick.C) {
		if err := d.Once(ctx); ctx.Err() == nil && failing.Due(err) {
			d.Report(ctx, err)
		}
	}
}

// Once delivers batches until the outbox has no free events. It deletes a batch only after all its
// calls of Tell: an event comes at least once, and again after its claim when it was not told. Each
// batch comes oldest first; events of several processes may overtake each other, and so may those
// behind a batch that Tell suddenly delays.
func (d Delivery[E]) Once(ctx context.Context) error {
	for limit := 1; ; {
		now, began := d.Now(), time.Now()
		events, err := d.Store.ClaimEvents(ctx, now, now.Add(claim), limit)
		if err != nil || len(events) == 0 {
			return err
		}
		var ids []uuid.UUID
		for _, event := range events {
			if d.Tell(ctx, event) {
				ids = append(ids, d.ID(event))
			}
			if time.Since(began) > claim/2 {
				break // the others come when the claim is over
			}
		}
		if err := d.delete(ctx, ids); err != nil {
			return err
		}
		if limit = min(2*limit, most); time.Since(began) > usual {
			limit = max(1, limit/4)
		}
	}
}

// delete deletes delivered events, also after ctx has ended: otherwise the last batch would be
// delivered again.
func (d Delivery[E]) delete(ctx context.Context, ids []uuid.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeleteTimeout)
	defer cancel()
	return d.Store.DeleteEvents(ctx, ids)
}
