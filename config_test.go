package svc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

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
		"Config.Keys.Imports[0].Hash returns 4 bytes":             {Store: memstore.New(), Keys: svc.KeyConfig{Imports: []svc.KeyImport{{Prefix: "old-", Hash: func(string) []byte { return make([]byte, 4) }}}}},
		"Config.Templates.LocalEdits must":                        {Store: memstore.New(), Templates: svc.TemplateConfig{LocalEdits: "keep"}},
		"Config.Memory.Keys":                                      {Store: memstore.New(), Memory: svc.Memory{Keys: -1}},
		"Config.Keys.Peppers[0].Secret":                           {Store: memstore.New(), Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1"}}}},
		"Config.Parameters: parameter 0 (\"words\"):":             {Store: memstore.New(), Parameters: []parameter.Definition{{Name: "words", Type: parameter.Text}}},
	} {
		_, err := svc.New(config)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), field), field, ": ", err)
	}
}

func TestSmallestConfig(t *testing.T) {
	is, service := is.New(t), must(svc.New(svc.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)}))
	issued := must(service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{}))
	who := must(service.Authenticate(t.Context(), string(issued.Key)))
	is.Equal(who.Identity(), svc.Identity{Kind: svc.KindUser, ID: "alice"})

	wantCode(t, errorOf(service.Authenticate(t.Context(), "a token of nobody")), svc.CodeUnauthenticated, "")
	wantCode(t, errorOf(service.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: "https://example.com/a"})), svc.CodeInvalid, "/url")
	is.NoErr(service.Close())
}

// A secret does not show, and neither does what a host's secrets are configured with.
func TestSecretsDoNotShow(t *testing.T) {
	is, key := is.New(t), svc.Secret("canary")
	config := svc.Config{
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("canary")}}},
		Sources: svc.SourceConfig{SealingKey: []byte("canary"), OldSealingKeys: [][]byte{[]byte("canary")}},
	}
	var out strings.Builder
	for _, log := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(log).Info("m", "keys", config.Keys, "sources", config.Sources, "key", key, "in", map[string]any{"key": key}, "issued", svc.IssuedKey{Key: key})
	}
	out.Write(must(json.Marshal(map[string]any{"key": key, "issued": svc.IssuedKey{Key: key}})))
	out.WriteString(key.String() + key.GoString())
	for _, value := range []any{config, &config, config.Keys.Peppers, config.Sources, key, struct{ Key svc.Secret }{key}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			out.WriteString(sprintf(verb, value))
		}
	}
	for _, shown := range []string{"canary", "99 97 110 97", "63616e617279", "Y2FuYXJ5", "0x63, 0x61"} {
		is.True(!strings.Contains(out.String(), shown))
	}
	is.True(strings.Contains(out.String(), "{1 ***}") && strings.Contains(out.String(), "key=***"))
}

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
	var warnings bytes.Buffer
	warned := newHost(t, func(c *svc.Config) { // as when no secret is set in the environment
		c.Logger, c.Keys.Peppers = slog.New(slog.NewTextHandler(&warnings, nil)), []svc.Pepper{{}}
	})
	must(warned.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: acme}))
	warned.market.catalog.Failure = errDown
	must(warned.Sources.Browse(t.Context(), svc.Host, "acme", svc.CatalogFilter{}))
	is.True(strings.Contains(warnings.String(), "without a pepper") && strings.Contains(warnings.String(), "last good catalogue"))
	must(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
	is.True(strings.Contains(log.String(), "level=ERROR") && strings.Contains(log.String(), "of the host"))
}

// A store repeats a key in what it says in the background: it panics, and later fails.
func TestNoKeyIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, key := is.New(t), string(issue(t, newHost(t), alice).Key)
		var log syncBuffer
		var panicked atomic.Bool
		h := newHost(t, func(c *svc.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Store = outside(c.Store, func(_ context.Context, call intercept.Call) error {
				switch {
				case call.Method != "ClaimEvents":
					return call.Do()
				case panicked.CompareAndSwap(false, true):
					panic("cannot read " + key)
				}
				return errors.New("cannot claim " + key)
			})
			c.Events.OnEvent = func(context.Context, svc.Event) { panic("cannot send " + key) }
		})
		must(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
		pass(time.Minute)
		for _, what := range []string{"cannot read", "cannot claim", "cannot send"} {
			is.True(strings.Contains(log.String(), what))
		}
		is.True(!strings.Contains(log.String(), key))
	})
}

// Where the host requires known users, its sessions and the keys end with the user.
func TestRequireKnownUsers(t *testing.T) {
	is := is.New(t)
	var asked int
	known, fails := map[string]bool{"ann": true}, error(nil)
	clock := newClock()
	h := newHost(t, clock.configure, func(c *svc.Config) {
		c.Users.Known = func(_ context.Context, id string) (bool, error) {
			asked++
			return known[id], fails
		}
		c.Users.RequireKnown = true
		c.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			return user(bearer), nil
		})
	})
	h.apply(t, `{"users": [{"id": "ann"}, {"id": "eve"}], "service_accounts": [{"id": "bot", "owner_user_id": "ann"}]}`)
	keys := map[string]svc.Secret{}
	for name, holder := range map[string]svc.Identity{"ann": user("ann").Identity(), "bot": account("bot").Identity(), "eve": user("eve").Identity()} {
		key := must(h.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
		keys[name] = key.Key
	}
	ways := map[string]func() error{
		"key":     func() error { return errorOf(h.Authenticate(t.Context(), string(keys["ann"]))) },
		"account": func() error { return errorOf(h.Authenticate(t.Context(), string(keys["bot"]))) },
		"bearer":  func() error { return errorOf(h.Authenticate(t.Context(), "ann")) },
		"session": func() error { return h.Accept(t.Context(), user("ann")) },
		"introspect": func() error {
			in, err := h.Keys.Introspect(t.Context(), svc.Host, string(keys["ann"]))
			if err == nil && !in.Active {
				err = svc.ErrUnauthenticated
			}
			return err
		},
	}
	for name, way := range ways {
		known["ann"], fails = true, nil
		clock.in(svc.KnownUserPeriod)
		asked = 0
		for range 3 {
			is.NoErr(way())
		}
		is.Equal(asked, 1) // then it is remembered
		known["ann"] = false
		clock.in(svc.KnownUserPeriod - time.Microsecond)
		is.NoErr(way())
		clock.in(time.Microsecond)
		err := way()
		expect.Holds(t, errors.Is(err, svc.ErrUnauthenticated) || svc.ErrorCode(err) == svc.CodeUnauthenticated, name, ": ", err)
		known["ann"] = true
		is.NoErr(way()) // a no is not remembered
		clock.in(svc.KnownUserPeriod)
		fails = errors.New("no directory")
		wantCode(t, way(), svc.CodeUnavailable, "")
	}
	fails = nil
	wantCode(t, errorOf(h.Authenticate(t.Context(), string(keys["eve"]))), svc.CodeUnauthenticated, "")
	_, err := svc.New(svc.Config{Store: h.store, Users: svc.UserConfig{RequireKnown: true}})
	is.True(err != nil && strings.Contains(err.Error(), "Config.Users.Known"))
}

func TestCached(t *testing.T) {
	for cached, bounds := range map[int]struct{ least, most int }{0: {1000, 1000}, 64: {1, 448}} {
		h, store := watched(t, func(c *svc.Config) { c.Memory.Keys = cached })
		keys := make([]svc.IssuedKey, 1000)
		for i := range keys {
			keys[i] = issue(t, h, alice)
		}
		remembered := func() (n int) {
			rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, key := range keys {
				before := store.reads.Load()
				if !h.good(key) {
					t.Fatal("a good key is refused")
				}
				if store.reads.Load() == before {
					n++
				}
			}
			return n
		}
		eventually(t, func() bool { return remembered() >= bounds.least })
		n := remembered()
		expect.Holds(t, n <= bounds.most, "of ", len(keys), " keys are remembered: ", n)
	}
}

// A Service that is read-only refuses every mutation, of the host as well, and the store stays as it is.
func TestReadOnlyWritesNothing(t *testing.T) {
	t.Parallel()
	is, store := is.New(t), memstore.New()
	before := must(svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}}))
	is.NoErr(before.Access.Apply(t.Context(), svc.Host, parsed(t, tested)))
	ann := svc.Identity{Kind: svc.KindUser, ID: "ann"}
	issued := must(before.Keys.Issue(t.Context(), svc.Host, ann, svc.NewAPIKey{}))
	is.NoErr(before.Close())
	was := must(store.Changes(t.Context(), 1))

	s := must(svc.New(svc.Config{Store: store, Events: svc.EventConfig{Keep: true}, ReadOnly: true}))
	by := must(s.Authenticate(t.Context(), string(issued.Key)))
	is.True(must(s.May(t.Context(), by, action.Recall, "notes")))
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
		"sweep":  func() error { return errorOf(s.Keys.Sweep(t.Context(), svc.Host, time.Time{})) },
	} {
		calls["host's "+name] = call
	}
	for name, peppers := range map[string][]svc.Pepper{"no": nil, "the zero": {{}}, "a second": {{Version: "1", Secret: make([]byte, 32)}, {Retired: true}}} {
		none := must(svc.New(svc.Config{Store: memstore.New(), ReadOnly: true, Keys: svc.KeyConfig{Peppers: peppers}}))
		calls["issue under "+name+" pepper"] = func() error { return errorOf(none.Keys.Issue(t.Context(), svc.Host, ann, svc.NewAPIKey{})) }
	}
	for name, call := range calls {
		expect.Equal(t, name, svc.ErrorCode(call()), svc.CodeReadOnly)
	}
	is.NoErr(s.Access.Write(t.Context(), svc.Host, parsed(t, `{"users": [{"id": "new"}]}`), svc.BundleWrite{DryRun: true}))
	is.NoErr(s.Close()) // the use of the key is not written
	is.Equal(must(store.Changes(t.Context(), 1)), was)
	key := must(store.APIKeys(t.Context(), svc.APIKeyPage{Holder: ann, KeyQuery: svc.KeyQuery{Limit: 1}}))
	is.True(key[0].LastUsedAt.IsZero())

	kept := func(_ context.Context, call intercept.Call) error {
		is.True(call.Method != "KeepValue")
		return call.Do()
	}
	empty := must(svc.New(svc.Config{Store: outside(memstore.New(), kept), ReadOnly: true}))
	wantCode(t, errorOf(empty.Authenticate(t.Context(), string(issued.Key))), svc.CodeUnauthenticated, "")
	is.NoErr(empty.Close())
}
