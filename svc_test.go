package svc_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/store/memstore"
)

// host is a service as a host sets it up, with a clock that ticks a second a look and a market of its own.
type host struct {
	*svc.Service
	config svc.Config
	store  svc.Store
	market *market

	mu     sync.Mutex
	ticks  int
	events []svc.Event
}

var admin = svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}

func allAccess(t *testing.T, store svc.Store) (all struct {
	Generation int64
	svc.Bundle
}) {
	t.Helper()
	read, err := store.ReadAccess(t.Context(), svc.AccessRead{}, func(part svc.Bundle) error {
		for _, g := range part.Groups { // the members of a large group come in parts
			if last := len(all.Groups) - 1; last >= 0 && all.Groups[last].ID == g.ID {
				all.Groups[last].Members = append(all.Groups[last].Members, g.Members...)
			} else {
				all.Groups = append(all.Groups, g)
			}
		}
		all.Users = append(all.Users, part.Users...)
		all.ServiceAccounts = append(all.ServiceAccounts, part.ServiceAccounts...)
		all.Policies = append(all.Policies, part.Policies...)
		all.Attachments = append(all.Attachments, part.Attachments...)
		all.BankPolicies = append(all.BankPolicies, part.BankPolicies...)
		return nil
	})
	is.New(t).NoErr(err)
	all.Generation = read.Generation
	return all
}

// eventually tries until something is so. It counts tries and not time, because a machine may stop. On a machine that runs
// they take less than the five seconds after which a Service forgets what it cannot check, so a change that is not followed
// is noticed.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for range 4000 {
		if so() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("not in 4000 tries")
}

// pass lets time pass in a bubble of synctest, and then lets services finish what is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// strictStore is a memstore in which a transaction fails when one of its writes has failed, as in the stores of SQL.
type strictStore struct{ *memstore.Store }

func (s strictStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		var failed error
		err := fn(ctx, &intercept.Store{FullStore: tx.(svc.FullStore), Around: func(_ context.Context, call intercept.Call) error {
			err := call.Do()
			if call.Writes {
				failed = cmp.Or(failed, err)
			}
			return err
		}})
		return cmp.Or(err, failed)
	})
}

func newHost(t *testing.T, edits ...func(*svc.Config)) *host {
	h := &host{store: strictStore{memstore.New()}, market: newMarket()}
	h.config = svc.Config{
		Store:  h.store,
		Logger: slog.New(slog.DiscardHandler),
		Now:    h.now,
		Events: svc.EventConfig{OnEvent: func(_ context.Context, e svc.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		}},
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("a pepper of the test")}}},
		Sources: svc.SourceConfig{Marketplace: h.market, SealingKey: []byte("a sealing key of 32 bytes, thus!")},
	}
	for _, edit := range edits {
		edit(&h.config)
	}
	service := must(svc.New(h.config))
	t.Cleanup(func() { _ = service.Close() })
	h.Service = service
	return h
}

func adminSignsIn(c *svc.Config) {
	c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return admin, nil })
}

func hostOf(t *testing.T, bundle string, edits ...func(*svc.Config)) *host {
	t.Helper()
	h := newHost(t, edits...)
	h.apply(t, bundle)
	return h
}

func (h *host) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ticks++
	return time.Date(2026, 11, 21, 10, 0, h.ticks, 999, time.FixedZone("elsewhere", 3600))
}

// actions returns and forgets the events so far, as "action kind/id by actor".
func (h *host) actions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, e := range h.events {
		all = append(all, string(e.Action)+" "+string(e.Target.Kind)+"/"+e.Target.ID+" by "+e.Actor.ID)
	}
	h.events = nil
	return all
}

func (h *host) apply(t *testing.T, bundle string) {
	t.Helper()
	is.New(t).NoErr(h.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(bundle)))))
}

// market is a Marketplace whose sources are maps.
type market struct {
	mu      sync.Mutex
	content map[string]map[string]svc.Content // by URL, then id
	err     error
	asked   []svc.Upstream
	catalog svc.Catalog   // of every source
	maxAge  time.Duration // that the last catalogue was asked for with
	during  func()        // called while a source is asked
}

func newMarket() *market { return &market{content: map[string]map[string]svc.Content{}} }

func (m *market) CheckURL(url string) error {
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "fs://") {
		return errors.New("is not https")
	}
	return nil
}

// ask notes the request, and answers while nobody else is asked.
func (m *market) ask(up svc.Upstream, answer func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked = append(m.asked, up); m.during != nil {
		m.during()
	}
	answer()
	return m.err
}

func (m *market) Template(_ context.Context, up svc.Upstream, id string) (content svc.Content, err error) {
	var found bool
	if err = m.ask(up, func() { content, found = m.content[up.URL][id] }); err != nil || found {
		return content, err
	}
	none := &svc.Error{Code: svc.CodeNotFound, Message: "no such entry"}
	if now := m.catalog.Renames[id]; now != "" {
		none.Err = &svc.RenamedError{ID: now}
	}
	return content, none
}

func (m *market) Catalog(_ context.Context, up svc.Upstream, maxAge time.Duration) (catalog svc.Catalog, err error) {
	err = m.ask(up, func() { catalog, m.maxAge = m.catalog, maxAge })
	return catalog, err
}

func (m *market) Manifest(_ context.Context, up svc.Upstream, entry svc.CatalogEntry) (manifest json.RawMessage, err error) {
	err = m.ask(up, func() { manifest = m.content[up.URL][entry.ID].Manifest })
	return manifest, err
}

func (m *market) put(url, id string, content svc.Content) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.content[url] == nil {
		m.content[url] = map[string]svc.Content{}
	}
	m.content[url][id] = content
}

func (m *market) remove(url, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.content[url], id)
}

func ptr[T any](v T) *T { return &v }

func manifest(s string) json.RawMessage { return json.RawMessage(s) }

// wantCode fails unless err is an Error of that code, about that field.
func wantCode(t *testing.T, err error, code svc.Code, field string) {
	t.Helper()
	got, ok := errors.AsType[*svc.Error](err)
	expect.Holds(t, ok && got.Code == code && got.Field == field, "got ", err, ", want ", code, " of ", field)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func errorOf[T any](_ T, err error) error { return err }

func collect[T any](t *testing.T, seq func(func(T, error) bool)) []T {
	t.Helper()
	var all []T
	for row, err := range seq {
		is.New(t).NoErr(err)
		all = append(all, row)
	}
	return all
}

func lastError[T any](seq func(func(T, error) bool)) (last error) {
	for _, err := range seq {
		last = err
	}
	return last
}

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// Each decision is seen as it is made, and counted.
func ExampleService_Stats() {
	service, err := svc.New(svc.Config{
		Store: memstore.New(),
		Events: svc.EventConfig{OnDecision: func(_ context.Context, e svc.DecisionEvent) {
			fmt.Println(e.Principal.ID, e.Action, e.Bank, e.Outcome)
		}},
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
		c.Events.OnDecision = func(_ context.Context, e svc.DecisionEvent) { told = append(told, e) }
	})
	is.Equal(h.Stats(), svc.Stats{CacheBytes: h.Stats().CacheBytes})
	h.apply(t, `{"users": [{"id": "alice"}]}`)
	must(h.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
	is.Equal(h.Stats(), svc.Stats{CacheBytes: h.Stats().CacheBytes}) // who only writes follows nothing

	in := svc.Context{Provider: "mail"}
	must(h.Decide(t.Context(), svc.Host, "bank:recall", "notes", svc.Context{}))
	for range 3 {
		is.True(!must(h.Decide(t.Context(), user("nobody"), "bank:recall", "notes", in)).Allowed())
	}
	wantCode(t, errorOf(h.May(t.Context(), user("nobody"), "bank:*", "notes")), svc.CodeInvalid, "action")

	s := h.Stats()
	is.Equal([]uint64{s.Decisions, s.Denials}, []uint64{4, 3}) // an error is no decision
	is.True(s.CacheReads >= 1 && s.CacheReads <= 3)
	is.True(s.CacheBytes > 0)
	is.Equal(len(told), 4)
	last := told[3]
	_, ok := last.Parameter("llm_model")
	is.True(!ok)
	is.Equal([]any{last.Principal.ID, last.Action, last.Bank, last.Context}, []any{"nobody", "bank:recall", "notes", in})
	is.True(!last.Allowed() && last.Outcome == svc.ImplicitDeny && last.Reason() != "" && told[0].Allowed())
}

// The outbox of a transaction's events is counted until they are delivered.
func TestStatsOfTheOutbox(t *testing.T) {
	is, h := is.New(t), newHost(t, func(c *svc.Config) { c.Events.NoDelivery = true })
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

// watchedStore counts the reads that decisions make, and fails when it is told to.
type watchedStore struct {
	*intercept.Store
	reads atomic.Int64
	down  atomic.Bool
}

var errDown = fmt.Errorf("no route: %w", svc.ErrUnavailable)

func watch(store svc.Store) *watchedStore {
	s := &watchedStore{}
	s.Store = outside(store, func(_ context.Context, call intercept.Call) error {
		if call.Method == "Access" {
			s.reads.Add(1)
		}
		if s.down.Load() && readsAccess(call.Method) {
			return errDown
		}
		return call.Do()
	})
	return s
}

func readsAccess(method string) bool {
	return slices.Contains([]string{"Access", "Changes", "AwaitChange"}, method)
}

func watched(t *testing.T, edits ...func(*svc.Config)) (h *host, store *watchedStore) {
	h = newHost(t, append(edits, func(c *svc.Config) {
		store = watch(c.Store)
		c.Store = store
	})...)
	h.apply(t, world)
	return h, store
}

// warm asks until the answer is remembered.
func (h *host) warm(t *testing.T, store *watchedStore, p svc.Principal, bank string) {
	t.Helper()
	eventually(t, func() bool {
		before := store.reads.Load()
		_, err := h.Decide(t.Context(), p, "bank:recall", bank, svc.Context{})
		return err == nil && store.reads.Load() == before
	})
}

func TestDecideInATransaction(t *testing.T) {
	h, store := watched(t)
	h.warm(t, store, user("alice"), "notes")
	before := store.reads.Load()
	for range 3 {
		must(h.WithTx(store).Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{}))
	}
	is.New(t).Equal(store.reads.Load(), before+3)
}

func TestDecideAllocatesNothing(t *testing.T) {
	h, store := watched(t)
	alice := user("alice")
	h.warm(t, store, alice, "notes")
	allocs := testing.AllocsPerRun(1000, func() {
		if d, err := h.Decide(context.Background(), alice, "bank:recall", "notes", svc.Context{}); err != nil || !d.Allowed() {
			t.Error(d, err)
		}
	})
	expect.Holds(t, allocs < 1, "allocations: ", allocs)
}

func TestDecideOfAClosedService(t *testing.T) {
	h := newHost(t)
	must(h.Decide(t.Context(), alice, "bank:recall", "notes", svc.Context{}))
	is.New(t).NoErr(h.Close())
	for _, by := range []svc.Principal{alice, svc.Host, svc.Unmapped} {
		wantCode(t, errorOf(h.Decide(t.Context(), by, "bank:recall", "notes", svc.Context{})), svc.CodeUnavailable, "")
	}
}
