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
	"github.com/extsvc/svc/action"
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
	issued := must(inTx.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{}))
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
		c.Events.OnEvent = func(context.Context, svc.Event) { telling <- struct{}{}; <-closing }
	})
	create(t, &host{Service: h.WithTx(h.store)}, "a", svc.Content{})
	<-telling
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
	store := &faultyOutbox{memstore.New(), make(chan struct{}, 1)}
	store.fail <- struct{}{}
	h := newHost(t, func(c *svc.Config) { c.Store = store })
	wantCode(t, errorOf(h.WithTx(store).Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})), svc.CodeInternal, "")

	create(t, &host{Service: h.WithTx(store.FullStore)}, "a", svc.Content{})
	is.New(t).Equal(h.waitFor(t, 1), []string{"template.created template/a by admin"})
}

// TestKeptValuesOfARolledBackTransaction: what a transaction of the host kept is forgotten with it.
func TestKeptValuesOfARolledBackTransaction(t *testing.T) {
	h := newHost(t, func(c *svc.Config) { c.Keys.Peppers = nil })
	rolledBack := memstore.New()
	must(h.WithTx(rolledBack).Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{}))
	issued := issue(t, h, alice)
	again := newHost(t, func(c *svc.Config) { c.Keys.Peppers, c.Store = nil, h.store })
	must(again.Authenticate(t.Context(), string(issued.Key)))
}

func TestEventHookThatPanics(t *testing.T) {
	told := make(chan struct{}, 10)
	h := newHost(t, func(c *svc.Config) {
		c.Events.OnEvent = func(context.Context, svc.Event) { told <- struct{}{}; panic("the host's") }
	})
	issue(t, h, alice)
	issue(t, &host{Service: h.WithTx(h.store)}, alice)
	issue(t, &host{Service: h.WithTx(h.store)}, alice)
	is.New(t).Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 3)
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
		must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: url}))
		must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: name, AliasID: &name}))
	}
	store := &alone{FullStore: h.store.(svc.FullStore)}
	inTx := h.WithTx(store)
	is.Equal(must(inTx.Templates.CheckUpdates(t.Context(), admin, nil)), h.checkUpdates(t))
	is.Equal(len(must(inTx.Sources.Search(t.Context(), admin, svc.CatalogFilter{}))), 4)
	is.True(!store.met.Load())
	is.NoErr(inTx.Sources.Remove(t.Context(), admin, "b"))
}

// A command that delivers nothing leaves the events of transactions to the program that they are for.
func TestNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		command := newHost(t, func(c *svc.Config) { c.Events.NoDelivery = true })
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
		is.NoErr(program.Close())
		is.NoErr(command.Close())
	})
}

// A Service that is read-only refuses every mutation, of the host as well, and the store stays as it is.
func TestReadOnlyWritesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store := memstore.New()
	before := must(svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}}))
	is.NoErr(before.Access.Apply(t.Context(), svc.Host, parsed(t, tested)))
	ann := svc.Identity{Kind: svc.KindUser, ID: "ann"}
	issued := must(before.Keys.Issue(t.Context(), svc.Host, ann, svc.NewAPIKey{}))
	is.NoErr(before.Close())
	was := must(store.Changes(t.Context(), 1))

	s := must(svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}, ReadOnly: true}))
	by := must(s.Authenticate(t.Context(), string(issued.Key)))
	may, err := s.May(t.Context(), by, action.Recall, "notes")
	is.NoErr(err)
	is.True(may)
	w := newWaits(t, true) // whose table has every other mutation
	writable := w.host
	w.host = newHost(t, func(c *svc.Config) { *c = writable.config; c.ReadOnly = true })
	calls := w.mutations(t.Context())
	for name, call := range map[string]func() error{
		"apply":             func() error { return s.Access.Apply(t.Context(), svc.Host, parsed(t, `{"users": [{"id": "new"}]}`)) },
		"delete user":       func() error { return s.Users.Delete(t.Context(), svc.Host, "ann") },
		"forget user":       func() error { return s.ForgetUser(t.Context(), svc.Host, "ann") },
		"forget in records": func() error { return errorOf(s.Audit.Forget(t.Context(), svc.Host, ann, "")) },
		"remove test": func() error {
			return s.Access.RemoveTest(t.Context(), svc.Host, must(s.Access.Tests(t.Context(), svc.Host))[0].ID)
		},
		"reseal": func() error { return errorOf(s.Sources.Reseal(t.Context(), svc.Host)) },
	} {
		calls["host's "+name] = call
	}
	for name, call := range calls {
		if err := call(); svc.ErrorCode(err) != svc.CodeReadOnly {
			t.Errorf("%s: %v", name, err)
		}
	}
	is.NoErr(s.Access.Write(t.Context(), svc.Host, parsed(t, `{"users": [{"id": "new"}]}`), svc.BundleWrite{DryRun: true}))
	is.NoErr(s.Close()) // the use of the key is not written
	is.Equal(must(store.Changes(t.Context(), 1)), was)
	key := must(store.APIKeys(t.Context(), svc.APIKeyPage{Holder: ann, KeyQuery: svc.KeyQuery{Limit: 1}}))
	is.True(key[0].LastUsedAt.IsZero())
}

// What a write would ask of a source or of the host, it does not ask when nothing can be written.
func TestReadOnlyAsksNobody(t *testing.T) {
	is := is.New(t)
	h, installed := withTemplate(t)
	config := h.config
	config.Store, config.ReadOnly = h.store, true
	s := must(svc.New(config))
	defer s.Close()
	h.market.put(acme, "y", content("Y", "1"))
	h.market.put(acme, "x", content("X", "2"))
	asked := len(h.market.asked)
	_, err := s.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "y", SourceName: "acme"})
	wantCode(t, err, svc.CodeReadOnly, "")
	_, err = s.Templates.Update(t.Context(), admin, installed.ID, svc.UpdateRequest{})
	wantCode(t, err, svc.CodeReadOnly, "")
	is.Equal(len(h.market.asked), asked)
	_, err = s.Templates.CheckUpdate(t.Context(), admin, installed.ID) // which writes nothing
	is.NoErr(err)
	is.True(len(h.market.asked) > asked)
}
