package svc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
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

// allAccess returns every row of access of a store.
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
	if err != nil {
		t.Fatal(err)
	}
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

func newHost(t *testing.T, edits ...func(*svc.Config)) *host {
	t.Helper()
	h := &host{store: memstore.New(), market: newMarket()}
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
	b, err := svc.ParseBundle([]byte(bundle))
	if err == nil {
		err = h.Access.Apply(t.Context(), svc.Host, b)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	if !strings.HasPrefix(url, "https://") {
		return errors.New("is not https")
	}
	return nil
}

func (m *market) Template(_ context.Context, up svc.Upstream, id string) (svc.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, up)
	if m.during != nil {
		m.during()
	}
	if m.err != nil {
		return svc.Content{}, m.err
	}
	content, found := m.content[up.URL][id]
	if !found {
		return svc.Content{}, &svc.Error{Code: svc.CodeNotFound, Message: "no such entry"}
	}
	return content, nil
}

func (m *market) Catalog(_ context.Context, up svc.Upstream, maxAge time.Duration) (svc.Catalog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, up)
	m.maxAge = maxAge
	return m.catalog, m.err
}

func (m *market) Manifest(_ context.Context, up svc.Upstream, entry svc.CatalogEntry) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, up)
	return m.content[up.URL][entry.ID].Manifest, m.err
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
	if !ok || got.Code != code || got.Field != field {
		t.Errorf("got %v, want %s of %q", err, code, field)
	}
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// errorOf is the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func collect[T any](t *testing.T, seq func(func(T, error) bool)) []T {
	t.Helper()
	var all []T
	for row, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
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

func TestNewNamesTheField(t *testing.T) {
	sealing := func(keys ...[]byte) svc.Config {
		return svc.Config{Store: memstore.New(), Sources: svc.SourceConfig{SealingKey: keys[0], OldSealingKeys: keys[1:]}}
	}
	for field, config := range map[string]svc.Config{
		"Config.Store":                                            {},
		"Config.Sources.SealingKey: ":                             sealing([]byte("short")),
		"Config.Sources.OldSealingKeys: ":                         sealing(nil, keyA),
		"OldSealingKeys[0]: must be 32":                           sealing(keyA, nil),
		"OldSealingKeys[1]: must be 32":                           sealing(keyA, keyB, []byte("short")),
		"OldSealingKeys[0]: is listed twice":                      sealing(keyA, keyA),
		"OldSealingKeys[2]: is listed twice":                      sealing(keyA, keyB, keyC, keyB),
		"Config.Keys.UserPrefix: \"A\"":                           {Store: memstore.New(), Keys: svc.KeyConfig{UserPrefix: "A"}},
		"Config.Keys.ServiceAccountPrefix: ":                      {Store: memstore.New(), Keys: svc.KeyConfig{UserPrefix: "k_", ServiceAccountPrefix: "k_"}},
		"Config.Keys.EarlierUserPrefixes[1]: \"\"":                {Store: memstore.New(), Keys: svc.KeyConfig{EarlierUserPrefixes: []string{"k_", ""}}},
		"Config.Keys.EarlierServiceAccountPrefixes[0]: \"svcu_\"": {Store: memstore.New(), Keys: svc.KeyConfig{EarlierServiceAccountPrefixes: []string{"svcu_"}}},
		"Config.Keys.Imports[0].Prefix must":                      {Store: memstore.New(), Keys: svc.KeyConfig{Imports: []svc.KeyImport{{}}}},
		"Config.Memory.Keys":                                      {Store: memstore.New(), Memory: svc.Memory{Keys: -1}},
		"Config.Keys.Peppers[0].Secret":                           {Store: memstore.New(), Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1"}}}},
	} {
		if _, err := svc.New(config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestSmallestConfig(t *testing.T) {
	is := is.New(t)
	service := must(svc.New(svc.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)}))
	issued := must(service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
	who := must(service.Authenticate(t.Context(), string(issued.Key)))
	is.Equal(who.Identity(), svc.Identity{Kind: svc.KindUser, ID: "alice"})

	wantCode(t, errorOf(service.Authenticate(t.Context(), "a token of nobody")), svc.CodeUnauthenticated, "")
	wantCode(t, errorOf(service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "https://example.com/a"})), svc.CodeInvalid, "/url")
	is.NoErr(service.Close())
}

func TestSecretDoesNotShow(t *testing.T) {
	is := is.New(t)
	key := svc.Secret("svcu_canary")
	var out strings.Builder
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "key", key, "in", map[string]any{"key": key})
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "key", key, "issued", svc.IssuedKey{Key: key})
	text := must(json.Marshal(map[string]any{"key": key, "issued": svc.IssuedKey{Key: key}}))
	out.Write(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		out.WriteString(sprintf(verb, key))
		out.WriteString(sprintf(verb, struct{ Key svc.Secret }{key}))
	}
	out.WriteString(key.String() + key.GoString())
	is.True(!strings.Contains(out.String(), "canary"))
	is.True(strings.Contains(out.String(), "***"))
}

// Neither does what a host's secrets are configured with.
func TestConfigDoesNotShow(t *testing.T) {
	is := is.New(t)
	config := svc.Config{
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("canary")}}},
		Sources: svc.SourceConfig{SealingKey: []byte("canary"), OldSealingKeys: [][]byte{[]byte("canary")}},
	}
	var out strings.Builder
	for _, log := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(log).Info("m", "keys", config.Keys, "sources", config.Sources)
	}
	for _, value := range []any{config, &config, config.Keys.Peppers, config.Sources} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			out.WriteString(sprintf(verb, value))
		}
	}
	for _, shown := range []string{"canary", "99 97 110 97", "63616e617279", "Y2FuYXJ5", "0x63, 0x61"} {
		is.True(!strings.Contains(out.String(), shown))
	}
	is.True(strings.Contains(out.String(), "{1 ***}"))
}

// What a host's Authenticator or a source says of what it was given is not repeated, by any error of the chain.
func TestErrorsOfOthersHideSecrets(t *testing.T) {
	is := is.New(t)
	const secret = "session-canary"
	var cause error
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) { return svc.Principal{}, cause })
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme, AuthToken: ptr(svc.Secret(secret))}))
	deep := &url.Error{Op: "Get", URL: "https://id.example.com/?token=" + secret, Err: io.EOF}
	for _, cause = range []error{
		deep, fmt.Errorf("at %w", deep), &svc.Error{Code: svc.CodeSourceFailed, Field: secret, Message: "has no " + secret}, &svc.Error{Code: svc.CodeSourceFailed, Message: "m", Err: deep},
	} {
		h.market.err = cause
		_, told := h.Authenticate(t.Context(), secret)
		wantCode(t, told, svc.CodeUnavailable, "")
		_, asked := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"})
		is.Equal(svc.ErrorCode(asked), svc.CodeSourceFailed)
		for _, err := range []error{told, asked} {
			is.True(strings.Contains(err.Error(), "***"))
			for ; err != nil; err = errors.Unwrap(err) {
				is.True(!strings.Contains(sprintf("%v %+v %#v", err, err, err), "canary"))
			}
		}
	}
	cause = io.ErrUnexpectedEOF // with nothing to hide the chain stays
	_, err := h.Authenticate(t.Context(), secret)
	is.True(errors.Is(err, cause))
}

func TestErrorCode(t *testing.T) {
	is := is.New(t)
	is.Equal(svc.ErrorCode(nil), svc.Code(""))
	is.Equal(svc.ErrorCode(errors.New("other")), svc.CodeInternal)
	cause := errors.New("cause")
	err := error(&svc.Error{Code: svc.CodeNotFound, Field: "bank", Message: "is gone", Err: cause})
	is.Equal(svc.ErrorCode(errors.Join(err)), svc.CodeNotFound)
	is.Equal(err.Error(), "bank: is gone: cause")
	is.True(errors.Is(err, cause))
}

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// Without a Logger no error is lost, and nothing else is logged.
func TestNoLogger(t *testing.T) {
	is := is.New(t)
	defer slog.SetDefault(slog.Default())
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	h := newHost(t, func(c *svc.Config) {
		c.Logger, c.Keys.Peppers = nil, nil // which is warned of
		c.Events.OnEvent = func(context.Context, svc.Event) { panic("of the host") }
	})
	is.Equal(log.String(), "")
	must(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
	is.True(strings.Contains(log.String(), "level=ERROR"))
	is.True(strings.Contains(log.String(), "of the host"))
}

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
