package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/store/memstore"
)

func recordWithRows(was, is string) svc.AuditRecord {
	r := svc.AuditRecord{Number: 1, Event: svc.Event{
		ID: uuid.UUID{6: 0x70}, Time: time.Unix(0, 0).UTC(), Actor: svc.Host.Identity(), Action: event.AccessWritten,
		Target: svc.Target{Kind: event.TargetGroup, ID: "g"},
		Was:    json.RawMessage(was), Is: json.RawMessage(is),
	}}
	rehash(&r)
	return r
}

func appended(t *testing.T, records ...svc.AuditRecord) *host {
	h := newHost(t, keeping)
	events := make([]svc.Event, len(records))
	is.New(t).NoErr(h.store.(svc.AuditStore).QueueAudit(t.Context(), events, func(svc.AuditRecord, []svc.Event) []svc.AuditRecord { return records }))
	return h
}

// TestRowsAreInTheChain: a hash vouches for both rows, and for each as what it is.
func TestRowsAreInTheChain(t *testing.T) {
	middle := `,"number":1,"previous":null,"target":{"holder":null,"id":"g","kind":"group","owner":null,"scope":null},"time":"1970-01-01T00:00:00.000000Z","was":`
	for _, c := range []struct{ was, is string }{
		{"null", `{"id":"g"}`}, {`{"id":"g"}`, "null"}, {`{"id":"g"}`, `{"id":"g","members":["a"]}`},
		{`{"document":{}` + middle + `{}}`, `{"id":"g"}`}, // a policy may look like the rest of a record
	} {
		good := recordWithRows(c.was, c.is)
		for _, row := range []*json.RawMessage{&good.Was, &good.Is} {
			if string(*row) == "null" {
				*row = nil
			}
		}
		appended(t, good).wantSound(t)
		for name, tamper := range map[string]func(*svc.AuditRecord){
			"was is lost":    func(r *svc.AuditRecord) { r.Was = nil },
			"is is lost":     func(r *svc.AuditRecord) { r.Is = nil },
			"was changes":    func(r *svc.AuditRecord) { r.Was = json.RawMessage(`{}`) },
			"is changes":     func(r *svc.AuditRecord) { r.Is = json.RawMessage(`{}`) },
			"they change":    func(r *svc.AuditRecord) { r.Was, r.Is = r.Is, r.Was },
			"null for none":  func(r *svc.AuditRecord) { r.Was, r.Is = orNullRow(r.Was), orNullRow(r.Is) },
			"cut elsewhere":  func(r *svc.AuditRecord) { r.Is, r.Was = cutElsewhere(r.Is, r.Was, middle) },
			"with a space":   func(r *svc.AuditRecord) { r.Is = append(slices.Clone(r.Is), ' ') },
			"rows of nobody": func(r *svc.AuditRecord) { r.Was, r.Is = json.RawMessage(`{"x":1}`), json.RawMessage(`{"x":1}`) },
		} {
			bad := good
			if tamper(&bad); string(bad.Was) == string(good.Was) && string(bad.Is) == string(good.Is) {
				continue
			}
			check := must(appended(t, bad).Audit.Verify(t.Context(), svc.Host))
			expect.Holds(t, check.Fault != nil, name, ": ", bad.Was, " to ", bad.Is)
		}
	}
}

func orNullRow(row json.RawMessage) json.RawMessage {
	if row == nil {
		return json.RawMessage("null")
	}
	return row
}

// cutElsewhere moves the end of is to where was looks like it: the form of the record is the same.
func cutElsewhere(is, was json.RawMessage, middle string) (otherIs, otherWas json.RawMessage) {
	before, after, found := strings.Cut(string(was), middle)
	if !found {
		return is, was
	}
	return json.RawMessage(string(is) + middle + before), json.RawMessage(after)
}

// TestRowsReachTheHost: in a transaction of the host, the outbox keeps them.
func TestRowsReachTheHost(t *testing.T) {
	is, told := is.New(t), make(chan svc.Event, 1)
	h := newHost(t, func(c *svc.Config) { c.Events.OnEvent = func(_ context.Context, e svc.Event) { told <- e } })
	want := recordWithRows(`{"id":"g"}`, `{"id":"g","members":["a"]}`).Event
	is.NoErr(h.store.(svc.OutboxStore).AddEvents(t.Context(), []svc.Event{want}))
	is.Equal(<-told, want)
}

func (h *host) waitFor(t *testing.T, wanted int) (all []string) {
	t.Helper()
	eventually(t, func() bool { all = append(all, h.actions()...); return len(all) >= wanted })
	return all
}

// TestOutboxAtTheEnd: what is being delivered waits in the outbox until then, and is not delivered again when the Service is closed.
func TestOutboxAtTheEnd(t *testing.T) {
	t.Parallel()
	is, telling, closing := is.New(t), make(chan struct{}), make(chan struct{})
	h := newHost(t, func(c *svc.Config) {
		c.Events.OnEvent = func(context.Context, svc.Event) { telling <- struct{}{}; <-closing }
	})
	create(t, &host{Service: h.WithTx(h.store)}, "a", svc.Content{})
	<-telling
	is.Equal(must(h.store.(svc.StatsStore).CountEvents(t.Context(), 10)), 1)
	time.AfterFunc(10*time.Millisecond, func() { close(closing) }) // while Close waits
	is.NoErr(h.Close())
	later := time.Now().AddDate(100, 0, 0) // when nobody claims it any more
	is.Equal(len(must(h.store.(svc.OutboxStore).ClaimEvents(t.Context(), later, later, 10))), 0)
}

func TestOutboxWithoutListener(t *testing.T) {
	h := newHost(t, func(c *svc.Config) { c.Events.OnEvent = nil })
	create(t, &host{Service: h.WithTx(h.store)}, "a", svc.Content{})
	is.New(t).Equal(len(must(h.store.(svc.OutboxStore).ClaimEvents(t.Context(), time.Now(), time.Now(), 10))), 0)
}

func TestOutboxFaults(t *testing.T) {
	t.Parallel()
	var failed atomic.Bool
	store := outside(memstore.New(), func(_ context.Context, call intercept.Call) error {
		switch {
		case call.Method == "AddEvents":
			return errors.New("no room")
		case call.Method == "ClaimEvents" && failed.CompareAndSwap(false, true):
			return svc.ErrUnavailable
		}
		return call.Do()
	})
	h := newHost(t, func(c *svc.Config) { c.Store = store })
	wantCode(t, errorOf(h.WithTx(store).Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})), svc.CodeInternal, "")

	create(t, &host{Service: h.WithTx(store.FullStore)}, "a", svc.Content{})
	is.New(t).Equal(h.waitFor(t, 1), []string{"template.created template/a by admin"})
}

// A hook may panic, or end its goroutine, as a test's Fatal does.
func TestEventHookThatPanics(t *testing.T) {
	for _, end := range []func(){func() { panic("the host's") }, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) { eventHookThatEnds(t, end) })
	}
}

// An event of the outbox comes again until the hook returns.
func eventHookThatEnds(t *testing.T, end func()) {
	is, told, again := is.New(t), make(chan uuid.UUID, 100), make(chan uuid.UUID, 100)
	var mended atomic.Bool
	h := newHost(t, func(c *svc.Config) {
		c.Events.OnEvent = func(_ context.Context, e svc.Event) {
			if mended.Load() {
				again <- e.ID
				return
			}
			told <- e.ID
			end()
		}
	})
	_ = background.Call(func() error { issue(t, h, alice); return nil }) // OnEvent runs in its goroutine
	<-told
	issue(t, &host{Service: h.WithTx(h.store)}, alice)
	issue(t, &host{Service: h.WithTx(h.store)}, alice)
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 3)
	first, second := <-told, <-told
	mended.Store(true)
	pass(time.Minute)
	is.Equal([]uuid.UUID{<-again, <-again}, []uuid.UUID{first, second})
	is.Equal(len(told)+len(again), 0)
	is.Equal(must(h.store.(svc.StatsStore).CountEvents(t.Context(), 9)), 0)
}

// A hook that gets the event of a change may make the next one, as any caller.
func TestEventHookMakesChanges(t *testing.T) {
	is := is.New(t)
	var h *host
	h = newHost(t, func(c *svc.Config) {
		c.Events.OnEvent = func(ctx context.Context, e svc.Event) {
			if e.Target.ID == "u" {
				ctx, end := context.WithTimeout(ctx, time.Minute)
				defer end()
				is.NoErr(errorOf(h.Users.Create(ctx, admin, svc.User{ID: "of u"})))
			}
		}
	})
	must(h.Users.Create(t.Context(), admin, svc.User{ID: "u"}))
	must(h.Users.Read(t.Context(), admin, "of u"))
}

// However long OnEvent takes, an event comes once, and Close waits for few of those that wait.
func TestOutboxOfASlowHost(t *testing.T) {
	for _, c := range []struct {
		quick int64 // the number of events that take no time
		takes time.Duration
	}{{0, time.Millisecond}, {0, 300 * time.Millisecond}, {0, 2 * time.Second}, {0, 20 * time.Second}, {40, 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			is, told := is.New(t), atomic.Int64{}
			slow := func(config *svc.Config) {
				config.Now = time.Now
				config.Events.OnEvent = func(context.Context, svc.Event) {
					if told.Add(1) > c.quick {
						time.Sleep(c.takes)
					}
				}
			}
			one := newHost(t, slow)
			another := func() *host { return newHost(t, slow, func(c *svc.Config) { c.Store = one.store }) }
			two, in := another(), one.WithTx(one.store)
			for range 150 {
				must(in.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
			}
			time.Sleep(5 * time.Second)
			for _, h := range []*host{one, two} {
				closing := time.Now()
				is.NoErr(h.Close())
				is.True(time.Since(closing) <= max(3*time.Second, 2*c.takes))
			}
			three := another()
			time.Sleep(150 * (c.takes + time.Second))
			is.Equal(told.Load(), int64(150))
			is.NoErr(three.Close())
		})
	}
}

// A command that delivers nothing leaves the events of transactions to the program that they are for.
func TestNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, command := is.New(t), newHost(t, func(c *svc.Config) { c.Events.NoDelivery = true })
		is.NoErr(command.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
			return errorOf(command.WithTx(tx).Keys.Issue(ctx, svc.Host, alice.Identity(), svc.NewAPIKey{}))
		}))
		time.Sleep(time.Minute)
		is.Equal(len(command.actions()), 0)
		must(command.Keys.Issue(t.Context(), svc.Host, bob.Identity(), svc.NewAPIKey{}))
		is.Equal(len(command.actions()), 1) // its own calls report their events
		program := newHost(t, func(c *svc.Config) { c.Store = command.store })
		time.Sleep(time.Minute)
		is.Equal(len(program.actions()), 1)
		is.Equal(len(command.actions()), 0)
		silent := newHost(t, func(c *svc.Config) { c.Store, c.Events = command.store, svc.EventConfig{NoDelivery: true} })
		is.NoErr(command.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
			return errorOf(silent.WithTx(tx).Keys.Issue(ctx, svc.Host, bob.Identity(), svc.NewAPIKey{}))
		}))
		time.Sleep(time.Minute)
		is.Equal(len(program.actions()), 1)
		is.NoErr(errors.Join(silent.Close(), program.Close(), command.Close()))
	})
}
