package svc_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// waitFor waits until the events so far are as many as wanted, and returns them.
func (h *host) waitFor(t *testing.T, wanted int) (all []string) {
	t.Helper()
	eventually(t, func() bool { all = append(all, h.actions()...); return len(all) >= wanted })
	return all
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := newHost(t)
	inTx := h.WithTx(h.store)
	issued, err := inTx.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	is.NoErr(err)
	is.Equal(h.waitFor(t, 1), []string{"api_key.issued api_key/" + issued.ID + " by alice"})

	is.NoErr(inTx.Keys.Revoke(t.Context(), alice, svc.Me, issued.ID))
	is.Equal(h.waitFor(t, 1), []string{"api_key.revoked api_key/" + issued.ID + " by alice"})
	is.NoErr(inTx.Close())
}

func TestOutboxOutlivesItsService(t *testing.T) {
	is := is.New(t)
	first := newHost(t)
	is.NoErr(first.Close())
	is.NoErr(first.Close())
	create(t, &host{Service: first.WithTx(first.store)}, "a", svc.Content{})
	is.Equal(first.actions(), nil) // nobody delivers any more

	second := newHost(t, func(c *svc.Config) { c.Store = first.store })
	is.Equal(second.waitFor(t, 1), []string{"template.created template/a by admin"})
}

// TestOutboxAtTheEnd: what is being delivered when the Service is closed is not delivered again.
func TestOutboxAtTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	telling, closing := make(chan struct{}), make(chan struct{})
	h := newHost(t, func(c *svc.Config) {
		c.OnEvent = func(context.Context, svc.Event) { telling <- struct{}{}; <-closing }
	})
	create(t, &host{Service: h.WithTx(h.store)}, "a", svc.Content{})
	<-telling
	time.AfterFunc(10*time.Millisecond, func() { close(closing) }) // while Close waits
	is.NoErr(h.Close())
	later := time.Now().AddDate(100, 0, 0) // when nobody claims it any more
	events, err := h.store.(svc.OutboxStore).ClaimEvents(t.Context(), later, later, 10)
	is.NoErr(err)
	is.Equal(len(events), 0)
}

func TestOutboxWithoutListener(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) { c.OnEvent = nil })
	create(t, &host{Service: h.WithTx(h.store)}, "a", svc.Content{})
	events, err := h.store.(svc.OutboxStore).ClaimEvents(t.Context(), time.Now(), time.Now(), 10)
	is.NoErr(err)
	is.Equal(len(events), 0)
}

// faultyOutbox fails once in each of its methods.
type faultyOutbox struct {
	svc.FullStore
	fail chan struct{}
}

func (s *faultyOutbox) ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
	select {
	case <-s.fail:
		return nil, svc.ErrUnavailable
	default:
		return s.FullStore.ClaimEvents(ctx, now, until, limit)
	}
}

func (s *faultyOutbox) AddEvents(context.Context, []svc.Event) error { return errors.New("no room") }

func TestOutboxFaults(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store := &faultyOutbox{memstore.New(), make(chan struct{}, 1)}
	store.fail <- struct{}{}
	h := newHost(t, func(c *svc.Config) { c.Store = store })
	_, err := h.WithTx(store).Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	wantCode(t, err, svc.CodeInternal, "")

	create(t, &host{Service: h.WithTx(store.FullStore)}, "a", svc.Content{})
	is.Equal(h.waitFor(t, 1), []string{"template.created template/a by admin"})
}

// TestKeptValuesOfARolledBackTransaction: what a transaction of the host kept is forgotten with it.
func TestKeptValuesOfARolledBackTransaction(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) { c.Keys.Peppers = nil })
	rolledBack := memstore.New()
	_, err := h.WithTx(rolledBack).Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	is.NoErr(err)
	issued := issue(t, h, alice)
	again := newHost(t, func(c *svc.Config) { c.Keys.Peppers, c.Store = nil, h.store })
	_, err = again.Authenticate(t.Context(), string(issued.Key))
	is.NoErr(err)
}

func TestEventHookThatPanics(t *testing.T) {
	is := is.New(t)
	told := make(chan struct{}, 10)
	h := newHost(t, func(c *svc.Config) {
		c.OnEvent = func(context.Context, svc.Event) { told <- struct{}{}; panic("the host's") }
	})
	issue(t, h, alice)
	issue(t, &host{Service: h.WithTx(h.store)}, alice)
	issue(t, &host{Service: h.WithTx(h.store)}, alice)
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 3)
	for range 3 {
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatal("an event is not told")
		}
	}
}

// alone notes whether two of its calls were under way at once.
type alone struct {
	svc.FullStore
	calls atomic.Int32
	met   atomic.Bool
}

func (s *alone) call() (done func()) {
	if s.calls.Add(1) > 1 {
		s.met.Store(true)
	}
	time.Sleep(time.Millisecond)
	return func() { s.calls.Add(-1) }
}

func (s *alone) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	defer s.call()()
	return s.FullStore.Source(ctx, key)
}

func (s *alone) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	defer s.call()()
	return s.FullStore.Installations(ctx, page)
}

// TestSourcesInATransaction: it is for one goroutine at a time.
func TestSourcesInATransaction(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	for _, name := range []string{"b", "c", "d"} {
		url := "https://example.com/" + name
		h.market.put(url, "x", content("X", "1"))
		_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: url})
		is.NoErr(err)
		_, err = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: name, AliasID: &name})
		is.NoErr(err)
	}
	store := &alone{FullStore: h.store.(svc.FullStore)}
	inTx := h.WithTx(store)
	checked, err := inTx.Templates.CheckUpdates(t.Context(), admin, nil)
	is.NoErr(err)
	is.Equal(checked, h.checkUpdates(t))
	found, err := inTx.Sources.Search(t.Context(), admin, svc.CatalogFilter{})
	is.NoErr(err)
	is.Equal(len(found), 4)
	is.True(!store.met.Load())
	is.NoErr(inTx.Sources.Remove(t.Context(), admin, "b"))
}

// A command that delivers nothing leaves the events of transactions to the program that they are for.
func TestNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		command := newHost(t, func(c *svc.Config) { c.Events.NoDelivery = true })
		is.NoErr(command.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
			_, err := command.WithTx(tx).Keys.Issue(ctx, svc.Host, alice.Identity(), svc.NewAPIKey{})
			return err
		}))
		time.Sleep(time.Minute)
		is.Equal(len(command.actions()), 0)
		_, err := command.Keys.Issue(t.Context(), svc.Host, bob.Identity(), svc.NewAPIKey{})
		is.NoErr(err)
		is.Equal(len(command.actions()), 1) // its own calls report their events
		program := newHost(t, func(c *svc.Config) { c.Store = command.store })
		time.Sleep(time.Minute)
		is.Equal(len(program.actions()), 1)
		is.Equal(len(command.actions()), 0)
		is.NoErr(program.Close())
		is.NoErr(command.Close())
	})
}
