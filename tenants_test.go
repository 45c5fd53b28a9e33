package svc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/heaptest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/parameter"
	"github.com/extsvc/svc/store/memstore"
)

func newTenants(t *testing.T, config svc.TenantsConfig) *svc.Tenants {
	if config.Store == nil {
		config.Store = memstore.NewTenants()
	}
	tenants := must(svc.NewTenants(config))
	t.Cleanup(func() { _ = tenants.Close() })
	return tenants
}

func makeTenants(t *testing.T, in *svc.Tenants, names ...string) {
	for _, name := range names {
		must(in.Create(t.Context(), name))
	}
}

func issueIn(t *testing.T, in *svc.Tenants, name string) (secret string) {
	t.Helper()
	err := in.Use(t.Context(), name, func(s *svc.Service) error {
		issued, err := s.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
		secret = string(issued.Key)
		return err
	})
	is.New(t).NoErr(err)
	return secret
}

func bearerIn(ctx context.Context, in *svc.Tenants, name, bearer string) (p svc.Principal, err error) {
	err = in.Use(ctx, name, func(s *svc.Service) error {
		p, err = s.Authenticate(ctx, bearer)
		return err
	})
	return p, err
}

func TestTenantsAreApart(t *testing.T) {
	is, in := is.New(t), newTenants(t, svc.TenantsConfig{})
	makeTenants(t, in, "a", "A")
	secret := issueIn(t, in, "a")
	is.Equal(must(bearerIn(t.Context(), in, "a", secret)).ID, "alice")
	is.Equal(svc.ErrorCode(errorOf(bearerIn(t.Context(), in, "A", secret))), svc.CodeUnauthenticated)
}

// hostileNames are names of tenants that are only data.
var hostileNames = []string{
	"..a", `"; DROP SCHEMA public CASCADE; --`, "'", `"`, "pg_catalog", "PG_catalog", "svc_t1", "public",
	strings.Repeat("x", 64), strings.Repeat("x", 63), "%2e%2e", "{tenant}", "Ä", "a b", "*", "t1.db", "-",
}

func TestHostileNamesOfTenants(t *testing.T) {
	t.Parallel()
	is, in := is.New(t), newTenants(t, svc.TenantsConfig{})
	for _, bad := range []string{"", ".", "..", "a/b", `a\b`, "a\x00", "a\n", "\u202e", "\xff", strings.Repeat("x", 129)} {
		is.Equal(svc.ErrorCode(errorOf(in.Create(t.Context(), bad))), svc.CodeInvalid)
		is.Equal(svc.ErrorCode(in.Use(t.Context(), bad, nil)), svc.CodeNotFound)
		is.Equal(svc.ErrorCode(in.Drop(t.Context(), bad)), svc.CodeNotFound)
	}
	makeTenants(t, in, hostileNames...)
	var names []string
	for _, tenant := range collect(t, in.List(t.Context())) {
		names = append(names, tenant.Name)
	}
	is.Equal(names, slices.Sorted(slices.Values(hostileNames)))
	var all sync.WaitGroup
	for _, name := range hostileNames {
		_ = issueIn(t, in, name)
		all.Go(func() { is.NoErr(in.Drop(t.Context(), name)) })
	}
	all.Wait()
}

// A tenant that is suspended or dropped finishes its calls and begins none. Made anew, it is empty.
func TestTenantEnds(t *testing.T) {
	t.Parallel()
	is, in := is.New(t), newTenants(t, svc.TenantsConfig{})
	makeTenants(t, in, "a")
	secret := issueIn(t, in, "a")
	for _, end := range []func(context.Context, string) error{in.Suspend, in.Drop} {
		ended := make(chan error, 1)
		err := in.Use(t.Context(), "a", func(s *svc.Service) error {
			go func() { ended <- end(t.Context(), "a") }()
			for svc.ErrorCode(in.Use(t.Context(), "a", func(*svc.Service) error { return nil })) != svc.CodeNotFound {
				time.Sleep(time.Millisecond)
			}
			must(s.Authenticate(t.Context(), secret))
			is.Equal(len(ended), 0)
			_, err := s.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
			return err
		})
		is.NoErr(err)
		is.NoErr(<-ended)
		is.Equal(svc.ErrorCode(errorOf(bearerIn(t.Context(), in, "a", secret))), svc.CodeNotFound)
		if err := in.Resume(t.Context(), "a"); err == nil {
			must(bearerIn(t.Context(), in, "a", secret))
		}
	}
	is.Equal(svc.ErrorCode(in.Drop(t.Context(), "a")), svc.CodeNotFound)
	makeTenants(t, in, "a")
	is.Equal(svc.ErrorCode(errorOf(bearerIn(t.Context(), in, "a", secret))), svc.CodeUnauthenticated)
}

// A tenant that is suspended and resumed is served again, while a call from before still runs.
func TestResumedTenantWaitsForNobody(t *testing.T) {
	t.Parallel()
	is, store := is.New(t), memstore.NewTenants()
	here, there := newTenants(t, svc.TenantsConfig{Store: store}), newTenants(t, svc.TenantsConfig{Store: store})
	makeTenants(t, here, "a")
	old, end := make(chan *svc.Service, 1), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		is.NoErr(there.Use(t.Context(), "a", func(s *svc.Service) error {
			old <- s
			<-end
			return nil
		}))
	})
	before := <-old
	is.NoErr(here.Suspend(t.Context(), "a"))
	expect.Soon(t, "waited too long", func() bool {
		return svc.ErrorCode(there.Use(t.Context(), "a", func(*svc.Service) error { return nil })) == svc.CodeNotFound
	})
	is.NoErr(here.Resume(t.Context(), "a"))
	is.NoErr(there.Use(t.Context(), "a", func(s *svc.Service) error {
		is.True(s != before)
		is.Equal(s.Tenant().Name, "a")
		return nil
	}))
	dropped := make(chan error, 1)
	go func() { dropped <- there.Drop(t.Context(), "a") }()
	time.Sleep(50 * time.Millisecond)
	is.Equal(len(dropped), 0) // it waits for the call
	close(end)
	all.Wait()
	is.NoErr(<-dropped)
}

// Close waits for the calls that are running.
func TestTenantsCloseAfterTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, closed := newTenants(t, svc.TenantsConfig{}), false
		makeTenants(t, in, "a")
		is.New(t).NoErr(in.Use(t.Context(), "a", func(*svc.Service) error {
			go func() { closed = in.Close() == nil }()
			synctest.Wait()
			is.New(t).True(!closed)
			return nil
		}))
		synctest.Wait()
		is.New(t).True(closed)
	})
}

// A tenant exists for every call that begins after Create has returned, also while an earlier one learns that it does not.
func TestCreatedTenantIsThere(t *testing.T) {
	in := newTenants(t, svc.TenantsConfig{})
	nothing := func(*svc.Service) error { return nil }
	for i := range longtest.Times(20, 100) {
		name := fmt.Sprint("t", i)
		ended := make(chan struct{})
		for range 4 {
			go func() {
				for {
					select {
					case <-ended:
						return
					default:
						_ = in.Use(t.Context(), name, nothing)
					}
				}
			}()
		}
		makeTenants(t, in, name)
		is.New(t).NoErr(in.Use(t.Context(), name, nothing))
		close(ended)
	}
}

// Events, their records and the log name the tenant. Its outbox delivers before it closes.
func TestTenantIsNamed(t *testing.T) {
	is := is.New(t)
	var mu sync.Mutex
	var events []svc.Event
	in := newTenants(t, svc.TenantsConfig{Config: svc.Config{
		Events: svc.EventConfig{Keep: true, OnEvent: func(_ context.Context, e svc.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}},
	}})
	makeTenants(t, in, "a", "b")
	_ = issueIn(t, in, "a")
	_ = issueIn(t, in, "b")
	is.Equal(len(events), 2)
	is.Equal(events[0].Tenant, "a")
	is.Equal(events[1].Tenant, "b")
	is.NoErr(in.Use(t.Context(), "b", func(s *svc.Service) error {
		is.Equal(must(s.Audit.Verify(t.Context(), svc.Host)).Fault, nil)
		for _, record := range collect(t, s.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{})) {
			is.Equal(record.Tenant, "b")
		}
		return nil
	}))
}

// Each may change what a tenant has, but not who gets its events.
func TestEachTenant(t *testing.T) {
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{Each: func(tenant svc.Tenant, c *svc.Config) error {
		switch tenant.Name {
		case "b":
			c.Events.OnEvent = func(context.Context, svc.Event) {}
		case "stores":
			c.Store = memstore.New()
		case "ends":
			runtime.Goexit()
		}
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: "of " + tenant.Name}, nil
		})
		return nil
	}})
	makeTenants(t, in, "a", "b", "stores", "ends")
	is.Equal(must(bearerIn(t.Context(), in, "a", "x")).ID, "of a")
	for name, want := range map[string]string{
		"b": "Each must not set OnEvent or Store", "stores": "Each must not set OnEvent or Store", "ends": "a call has ended its goroutine",
	} {
		_, err := bearerIn(t.Context(), in, name, "x")
		is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
		is.True(strings.Contains(err.Error(), want))
	}
}

// What Each, or the host, changes in the slices of a Config is no other tenant's.
func TestEachTenantHasItsOwnConfig(t *testing.T) {
	given := func() svc.Config {
		key := func(first string) []byte { return []byte(first + "0123456789abcdef0123456789abcde") }
		return svc.Config{
			Keys: svc.KeyConfig{
				EarlierUserPrefixes: []string{"u_"}, EarlierServiceAccountPrefixes: []string{"s_"},
				Peppers: []svc.Pepper{{Version: "1", Secret: key("a")}},
				Imports: []svc.KeyImport{{Prefix: "gh-"}},
			},
			Sources: svc.SourceConfig{SealingKey: key("a"), OldSealingKeys: [][]byte{key("b")}},
			Parameters: []parameter.Definition{{
				Name: "n", Type: parameter.Level, Levels: []string{"l"}, Merge: parameter.Least, Narrow: parameter.Lesser,
			}},
		}
	}
	config := given()
	in := newTenants(t, svc.TenantsConfig{Config: config, Each: func(tenant svc.Tenant, c *svc.Config) error {
		got := *c
		got.Logger, got.Now = nil, nil
		expect.Equal(t, "the Config of tenant "+tenant.Name, got, given())
		clearSlices(t, reflect.ValueOf(c).Elem())
		return errors.New("no more is needed")
	}})
	clearSlices(t, reflect.ValueOf(&config).Elem())
	makeTenants(t, in, "a", "b")
	for _, name := range []string{"a", "b"} {
		_, err := bearerIn(t.Context(), in, name, "x")
		is.New(t).Equal(svc.ErrorCode(err), svc.CodeUnavailable)
	}
}

func clearSlices(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			clearSlices(t, v.Field(i))
		}
	case reflect.Slice:
		expect.Holds(t, v.Len() > 0, v.Type(), " is not empty")
		for i := range v.Len() {
			clearSlices(t, v.Index(i))
			v.Index(i).SetZero()
		}
	}
}

func TestTenantsConfig(t *testing.T) {
	for config, want := range map[*svc.TenantsConfig]string{
		{}: "TenantsConfig.Store is required",
		{Store: memstore.NewTenants(), Config: svc.Config{Store: memstore.New()}}:                                  "Config.Store must be nil",
		{Store: memstore.NewTenants(), MaxOpen: -1}:                                                                "must not be negative",
		{Store: memstore.NewTenants(), Config: svc.Config{Keys: svc.KeyConfig{UserPrefix: "?"}}}:                   "UserPrefix",
		{Store: memstore.NewTenants(), Config: svc.Config{Sources: svc.SourceConfig{SealingKey: []byte("short")}}}: "SealingKey",
	} {
		_, err := svc.NewTenants(*config)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), want), "got ", err, ", want ", want)
	}
}

// Callers write nothing in a tenant that is suspended or dropped while their call waits. Suspend and
// Drop do not wait for a call that never ends.
func TestSuspendedTenantIsNotWritten(t *testing.T) {
	for _, name := range []string{"suspend", "drop"} {
		for _, elsewhere := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				is, store := is.New(t), memstore.NewTenants()
				in := newTenants(t, svc.TenantsConfig{Store: store, Config: svc.Config{Logger: slog.New(slog.DiscardHandler)}})
				makeTenants(t, in, "a")
				from := in
				if elsewhere {
					from = newTenants(t, svc.TenantsConfig{Store: store})
				}
				end := map[string]func(context.Context, string) error{"suspend": from.Suspend, "drop": from.Drop}[name]
				released := make(chan struct{})
				began := make(chan *svc.Service)
				var all sync.WaitGroup
				all.Go(func() {
					is.NoErr(in.UseContext(t.Context(), "a", func(ctx context.Context, s *svc.Service) error {
						began <- s
						<-ctx.Done() // a call that follows its context
						return nil
					}))
				})
				all.Go(func() {
					is.NoErr(in.Use(t.Context(), "a", func(s *svc.Service) error {
						began <- s
						<-released // and one that does not
						return nil
					}))
				})
				s := <-began
				<-began
				ended := make(chan error, 1)
				go func() { ended <- end(t.Context(), "a") }()
				time.Sleep(svc.TenantGrace / 2)
				create := func(by svc.Principal) error {
					return errorOf(s.Templates.Create(t.Context(), by, svc.NewTemplate{ID: by.ID + "x", Content: content("X", "1")}))
				}
				is.Equal(svc.ErrorCode(create(admin)), svc.CodeNotFound)
				is.Equal(svc.ErrorCode(errorOf(s.Users.Create(t.Context(), admin, svc.User{ID: "new"}))), svc.CodeNotFound)
				if !elsewhere {
					is.NoErr(create(svc.Host)) // it finishes what it does
				}
				is.NoErr(<-ended)
				time.Sleep(2 * svc.TenantGrace)
				is.True(create(svc.Host.As("late")) != nil)
				is.Equal(svc.ErrorCode(errorOf(s.Authenticate(t.Context(), "any"))), svc.CodeNotFound)
				is.Equal(svc.ErrorCode(s.Accept(t.Context(), admin)), svc.CodeNotFound)
				close(released)
				all.Wait()
			})
		}
	}
}

func TestIdleTenantIsSmall(t *testing.T) {
	const count = 100
	in := newTenants(t, svc.TenantsConfig{})
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint("t", i))
	}
	makeTenants(t, in, names...)
	before := heaptest.Live()
	for _, name := range names {
		_ = issueIn(t, in, name)
		must(bearerIn(t.Context(), in, name, issueIn(t, in, name)))
	}
	if each := (heaptest.Live() - before) / count; each > 100_000 {
		t.Errorf("%d bytes each", each)
	}
	runtime.KeepAlive(in)
}

// Beyond the bound of all, tenants give their memory back: those that nobody uses close, and those
// in use forget what they have cached.
func TestMemoryOfTenantsIsBounded(t *testing.T) {
	longtest.Test(t, "the memory of tenants")
	large := strings.Repeat("x", 60_000)
	for name, of := range map[string]struct{ fill, read func(*svc.Service) error }{
		"templates": {func(s *svc.Service) error { // some 1.5 MB
			for i := range 25 {
				_, err := s.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: fmt.Sprint("t", i), Content: svc.Content{
					Name: "x", Manifest: fmt.Appendf(nil, `{"version":"1","text":%q}`, large),
				}})
				if err != nil && svc.ErrorCode(err) != svc.CodeExists {
					return err
				}
			}
			return nil
		}, func(s *svc.Service) error { // twice: the first asks for the copies
			for range 2 {
				for _, err := range s.Templates.List(t.Context(), svc.Host, svc.TemplateQuery{}) {
					if err != nil {
						return err
					}
				}
			}
			return nil
		}},
		"policies": {func(s *svc.Service) error {
			return s.Access.Apply(t.Context(), svc.Host, held(times(1_000, `{"effect":"allow","actions":["a#:*"],"banks":["b#"],"retain_tags":["#"]}`)))
		}, func(s *svc.Service) error {
			return cmp.Or(errorOf(s.Policies.WhoCan(t.Context(), svc.Host, "a1:x", "b1")), errorOf(s.Policies.Decide(t.Context(), svc.Host, svc.Question{UserID: "u", Bank: "b1", Action: "a1:x"})))
		}},
	} {
		t.Run(name, func(t *testing.T) { memoryOfTenants(t, of.fill, of.read) })
	}
}

func memoryOfTenants(t *testing.T, fill, read func(*svc.Service) error) {
	is, in := is.New(t), newTenants(t, svc.TenantsConfig{Memory: 2 << 20})
	names := []string{"a", "b", "c", "d", "e", "f"}
	makeTenants(t, in, names...)
	for _, name := range names {
		is.NoErr(in.Use(t.Context(), name, fill))
	}
	stored := heaptest.Live()
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	for _, name := range names {
		started := make(chan error)
		go func() {
			_ = in.Use(t.Context(), name, func(s *svc.Service) error {
				started <- read(s)
				<-held
				return nil
			})
		}()
		is.NoErr(<-started)
	}
	expect.Soon(t, "waited too long", func() bool { return heaptest.Live()-stored < 3<<20 })
	for _, name := range names {
		is.NoErr(in.Use(t.Context(), name, read))
	}
}
