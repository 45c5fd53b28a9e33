package svc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// Each decision is seen as it is made, and counted.
func ExampleService_Stats() {
	service, err := svc.New(svc.Config{
		Store: memstore.New(),
		OnDecision: func(_ context.Context, e svc.DecisionEvent) {
			fmt.Println(e.Principal.ID, e.Action, e.Bank, e.Outcome)
		},
	})
	if err != nil {
		return
	}
	defer service.Close()
	ann := svc.Principal{Kind: svc.KindUser, ID: "ann"}
	if _, err := service.May(context.Background(), ann, "bank:recall", "notes"); err != nil {
		return
	}
	stats := service.Stats()
	fmt.Println(stats.Decisions, "decision,", stats.Denials, "denial,", stats.OutboxWaiting, "events wait")
	// Output:
	// ann bank:recall notes implicit_deny
	// 1 decision, 1 denial, 0 events wait
}

func TestStats(t *testing.T) {
	is := is.New(t)
	var told []svc.DecisionEvent
	h := newHost(t, func(c *svc.Config) {
		c.OnDecision = func(_ context.Context, e svc.DecisionEvent) { told = append(told, e) }
	})
	is.Equal(h.Stats(), svc.Stats{CacheBytes: h.Stats().CacheBytes})

	in := svc.Context{Provider: "mail"}
	_, err := h.Decide(t.Context(), svc.Host, "bank:recall", "notes", svc.Context{})
	is.NoErr(err)
	for range 3 {
		d, err := h.Decide(t.Context(), user("nobody"), "bank:recall", "notes", in)
		is.NoErr(err)
		is.True(!d.Allowed())
	}
	_, err = h.May(t.Context(), user("nobody"), "bank:*", "notes")
	wantCode(t, err, svc.CodeInvalid, "action")

	s := h.Stats()
	is.Equal([]uint64{s.Decisions, s.Denials}, []uint64{4, 3}) // an error is no decision
	is.True(s.CacheReads >= 1 && s.CacheReads <= 3)
	is.True(s.CacheBytes > 0)
	is.Equal(len(told), 4)
	last := told[3]
	is.Equal([]any{last.Principal.ID, last.Action, last.Bank, last.Context}, []any{"nobody", "bank:recall", "notes", in})
	is.True(!last.Allowed() && last.Outcome == svc.ImplicitDeny && last.Reason() != "" && told[0].Allowed())
}

// The outbox of a transaction's events is counted until they are delivered.
func TestStatsOfTheOutbox(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) { c.Events.NoDelivery = true })
	is.Equal(h.Stats().OutboxWaiting, 0)
	is.NoErr(h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		return h.WithTx(tx).Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "alice"}}})
	}))
	is.Equal(h.Stats().OutboxWaiting, 1)

	none := newHost(t, withBareStore)
	is.Equal(none.Stats().OutboxWaiting, -1)
	broken := newHost(t, func(c *svc.Config) { c.Store = uncounted{c.Store} })
	is.Equal(broken.Stats().OutboxWaiting, -1)
}

type uncounted struct{ svc.Store }

func (uncounted) Hears() bool                                   { return true }
func (uncounted) CountEvents(context.Context, int) (int, error) { return 7, errors.New("planted") }
