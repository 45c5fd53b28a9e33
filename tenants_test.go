package svc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

func newTenants(t *testing.T, config svc.TenantsConfig) *svc.Tenants {
	t.Helper()
	if config.Store == nil {
		config.Store = memstore.NewTenants()
	}
	tenants, err := svc.NewTenants(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tenants.Close() })
	return tenants
}

// make makes tenants of these names.
func makeTenants(t *testing.T, in *svc.Tenants, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := in.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// issueIn issues a key of alice in a tenant, and returns its secret.
func issueIn(t *testing.T, in *svc.Tenants, name string) (secret string) {
	t.Helper()
	err := in.Use(t.Context(), name, func(s *svc.Service) error {
		issued, err := s.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
		secret = string(issued.Key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func bearerIn(ctx context.Context, in *svc.Tenants, name, bearer string) (p svc.Principal, err error) {
	err = in.Use(ctx, name, func(s *svc.Service) error {
		p, err = s.Authenticate(ctx, bearer)
		return err
	})
	return p, err
}

// A key of one tenant is unknown in another one.
func TestTenantsAreApart(t *testing.T) {
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{})
	makeTenants(t, in, "a", "A")
	secret := issueIn(t, in, "a")
	p, err := bearerIn(t.Context(), in, "a", secret)
	is.NoErr(err)
	is.Equal(p.ID, "alice")
	_, err = bearerIn(t.Context(), in, "A", secret)
	is.Equal(svc.ErrorCode(err), svc.CodeUnauthenticated)
}

// hostileNames are names of tenants that are only data.
var hostileNames = []string{
	"..a", `"; DROP SCHEMA public CASCADE; --`, "'", `"`, "pg_catalog", "PG_catalog", "svc_t1", "public",
	strings.Repeat("x", 64), strings.Repeat("x", 63), "%2e%2e", "{tenant}", "Ä", "a b", "*", "t1.db", "-",
}

func TestHostileNamesOfTenants(t *testing.T) {
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{})
	for _, bad := range []string{"", ".", "..", "a/b", `a\b`, "a\x00", "a\n", "\u202e", "\xff", strings.Repeat("x", 129)} {
		_, err := in.Create(t.Context(), bad)
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
		is.Equal(svc.ErrorCode(in.Use(t.Context(), bad, nil)), svc.CodeNotFound)
		is.Equal(svc.ErrorCode(in.Drop(t.Context(), bad)), svc.CodeNotFound)
	}
	makeTenants(t, in, hostileNames...)
	var names []string
	for tenant, err := range in.List(t.Context()) {
		is.NoErr(err)
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
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{})
	makeTenants(t, in, "a")
	secret := issueIn(t, in, "a")
	for _, end := range []func(context.Context, string) error{in.Suspend, in.Drop} {
		ended := make(chan error, 1)
		err := in.Use(t.Context(), "a", func(s *svc.Service) error {
			go func() { ended <- end(t.Context(), "a") }()
			for svc.ErrorCode(in.Use(t.Context(), "a", func(*svc.Service) error { return nil })) != svc.CodeNotFound {
				time.Sleep(time.Millisecond)
			}
			_, err := s.Authenticate(t.Context(), secret)
			is.NoErr(err)
			is.Equal(len(ended), 0)
			_, err = s.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
			return err
		})
		is.NoErr(err)
		is.NoErr(<-ended)
		_, err = bearerIn(t.Context(), in, "a", secret)
		is.Equal(svc.ErrorCode(err), svc.CodeNotFound)
		if err := in.Resume(t.Context(), "a"); err == nil {
			_, err = bearerIn(t.Context(), in, "a", secret)
			is.NoErr(err)
		}
	}
	is.Equal(svc.ErrorCode(in.Drop(t.Context(), "a")), svc.CodeNotFound)
	makeTenants(t, in, "a")
	_, err := bearerIn(t.Context(), in, "a", secret)
	is.Equal(svc.ErrorCode(err), svc.CodeUnauthenticated)
}

// Tenants in another process learn that a tenant is suspended.
func TestTenantEndsElsewhere(t *testing.T) {
	is := is.New(t)
	store := memstore.NewTenants()
	here, there := newTenants(t, svc.TenantsConfig{Store: store}), newTenants(t, svc.TenantsConfig{Store: store})
	makeTenants(t, here, "a", "b")
	nothing := func(*svc.Service) error { return nil }
	is.NoErr(there.Use(t.Context(), "a", nothing))
	is.NoErr(there.Use(t.Context(), "b", nothing))
	is.NoErr(here.Suspend(t.Context(), "a"))
	end := time.Now().Add(5 * time.Second)
	for there.Use(t.Context(), "a", nothing) == nil && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	is.Equal(svc.ErrorCode(there.Use(t.Context(), "a", nothing)), svc.CodeNotFound)
	is.NoErr(there.Use(t.Context(), "b", nothing))
	is.NoErr(here.Resume(t.Context(), "a"))
	is.NoErr(there.Use(t.Context(), "a", nothing))
}

// A tenant that is suspended and resumed is served again, while a call from before still runs.
func TestResumedTenantWaitsForNobody(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store := memstore.NewTenants()
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
	waitFor(t, func() bool {
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

// A tenant exists for every call that begins after Create has returned, also while an earlier one learns that it does not.
func TestCreatedTenantIsThere(t *testing.T) {
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{})
	nothing := func(*svc.Service) error { return nil }
	for i := range 100 {
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
		is.NoErr(in.Use(t.Context(), name, nothing))
		close(ended)
	}
}

// A tenant that is suspended elsewhere while it opens is not served, and delays no news about others.
func TestTenantEndsWhileItOpens(t *testing.T) {
	is := is.New(t)
	store := memstore.NewTenants()
	opening, open := make(chan struct{}), make(chan struct{})
	slow := &countedTenants{TenantStore: store, fails: func(tenant svc.Tenant) error {
		if tenant.Name == "slow" {
			close(opening)
			<-open
		}
		return nil
	}}
	here, there := newTenants(t, svc.TenantsConfig{Store: store}), newTenants(t, svc.TenantsConfig{Store: slow})
	makeTenants(t, here, "slow", "b")
	nothing := func(*svc.Service) error { return nil }
	is.NoErr(there.Use(t.Context(), "b", nothing))
	ended := make(chan error)
	go func() { ended <- there.Use(t.Context(), "slow", nothing) }()
	<-opening
	is.NoErr(here.Suspend(t.Context(), "slow"))
	is.NoErr(here.Suspend(t.Context(), "b"))
	gone := func(name string) func() bool {
		return func() bool { return svc.ErrorCode(there.Use(t.Context(), name, nothing)) == svc.CodeNotFound }
	}
	waitFor(t, gone("b"))
	close(open)
	<-ended
	waitFor(t, gone("slow"))
}

// countedTenants counts the tenants that are open.
type countedTenants struct {
	svc.TenantStore
	open, opened atomic.Int64
	fails        func(tenant svc.Tenant) error
}

func (c *countedTenants) MigrateTenant(ctx context.Context, tenant svc.Tenant) error {
	if c.fails != nil {
		return c.fails(tenant)
	}
	return c.TenantStore.MigrateTenant(ctx, tenant)
}

func (c *countedTenants) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	if c.fails != nil {
		if err := c.fails(tenant); err != nil {
			return nil, nil, err
		}
	}
	store, end, err := c.TenantStore.OpenTenant(ctx, tenant)
	c.open.Add(1)
	c.opened.Add(1)
	return store, func() error { c.open.Add(-1); return end() }, err
}

// Idle tenants are closed, and those above MaxOpen. One that is used again opens again.
func TestIdleTenantsClose(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store := &countedTenants{TenantStore: memstore.NewTenants()}
	in := newTenants(t, svc.TenantsConfig{Store: store, MaxOpen: 2, IdleTime: 3 * time.Second})
	names := []string{"a", "b", "c", "d"}
	makeTenants(t, in, names...)
	secrets := map[string]string{}
	for _, name := range names {
		secrets[name] = issueIn(t, in, name)
	}
	is.Equal(store.open.Load(), int64(4))
	waitFor(t, func() bool { return store.open.Load() == 2 })
	waitFor(t, func() bool { return store.open.Load() == 0 })
	for _, name := range names {
		_, err := bearerIn(t.Context(), in, name, secrets[name])
		is.NoErr(err)
	}
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited too long")
		}
	}
}

// Many callers of a closed tenant open it once. They use it while it opens, closes and opens again.
func TestTenantOpensOnce(t *testing.T) {
	is := is.New(t)
	store := &countedTenants{TenantStore: memstore.NewTenants()}
	in := newTenants(t, svc.TenantsConfig{Store: store})
	makeTenants(t, in, "a")
	secret := issueIn(t, in, "a")
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 200 {
				if _, err := bearerIn(t.Context(), in, "a", secret); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	is.Equal(store.opened.Load(), int64(1))
	for range 50 {
		is.NoErr(in.Suspend(t.Context(), "a"))
		is.Equal(store.open.Load(), int64(0))
		is.NoErr(in.Resume(t.Context(), "a"))
		_, err := bearerIn(t.Context(), in, "a", secret)
		is.NoErr(err)
	}
}

// A tenant that cannot be opened stops no other, and the log names it.
func TestTenantCannotOpen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var log syncBuffer
	var broken atomic.Bool
	store := &countedTenants{TenantStore: memstore.NewTenants(), fails: func(tenant svc.Tenant) error {
		if tenant.Name == "bad" && broken.Load() {
			return errors.New("version 4: disk full")
		}
		return nil
	}}
	in := newTenants(t, svc.TenantsConfig{
		Store: store, Config: svc.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	})
	makeTenants(t, in, "bad", "good")
	broken.Store(true)
	_, err := bearerIn(t.Context(), in, "bad", "x")
	is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
	is.True(!strings.Contains(err.(*svc.Error).Message, "disk"))
	_ = issueIn(t, in, "good")
	is.True(strings.Contains(log.String(), `tenant=bad error="the tenant cannot be opened at present: version 4: disk full"`))
	var seen []svc.Migration
	err = in.Migrate(t.Context(), func(m svc.Migration) { seen = append(seen, m) })
	is.True(strings.Contains(err.Error(), `tenant "bad" is not upgraded: version 4`))
	is.Equal(len(seen), 2)
	is.Equal(seen[1].Done, 2)
	is.Equal(seen[1].Failed, 1)
	broken.Store(false)
	is.NoErr(in.Migrate(t.Context(), nil))
	waitFor(t, func() bool {
		_, err := bearerIn(t.Context(), in, "bad", "x")
		return svc.ErrorCode(err) == svc.CodeUnauthenticated
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Events, their records and the log name the tenant. Its outbox delivers before it closes.
func TestTenantIsNamed(t *testing.T) {
	is := is.New(t)
	var mu sync.Mutex
	var events []svc.Event
	in := newTenants(t, svc.TenantsConfig{Config: svc.Config{
		Events: svc.EventConfig{Keep: true},
		OnEvent: func(_ context.Context, e svc.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		},
	}})
	makeTenants(t, in, "a", "b")
	_ = issueIn(t, in, "a")
	_ = issueIn(t, in, "b")
	is.Equal(len(events), 2)
	is.Equal(events[0].Tenant, "a")
	is.Equal(events[1].Tenant, "b")
	is.NoErr(in.Use(t.Context(), "b", func(s *svc.Service) error {
		check, err := s.Audit.Verify(t.Context(), svc.Host)
		is.NoErr(err)
		is.Equal(check.Fault, nil)
		for record, err := range s.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{}) {
			is.NoErr(err)
			is.Equal(record.Tenant, "b")
		}
		return nil
	}))
}

// Each may change what a tenant has, but not who gets its events.
func TestEachTenant(t *testing.T) {
	is := is.New(t)
	in := newTenants(t, svc.TenantsConfig{Each: func(tenant svc.Tenant, c *svc.Config) error {
		if tenant.Name == "b" {
			c.OnEvent = func(context.Context, svc.Event) {}
		}
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			return svc.Principal{Kind: svc.KindUser, ID: "of " + tenant.Name}, nil
		})
		return nil
	}})
	makeTenants(t, in, "a", "b")
	p, err := bearerIn(t.Context(), in, "a", "x")
	is.NoErr(err)
	is.Equal(p.ID, "of a")
	_, err = bearerIn(t.Context(), in, "b", "x")
	is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
	is.True(strings.Contains(err.Error(), "Each must not set OnEvent"))
}

func TestTenantsConfig(t *testing.T) {
	for config, want := range map[*svc.TenantsConfig]string{
		{}: "TenantsConfig.Store is required",
		{Store: memstore.NewTenants(), Config: svc.Config{Store: memstore.New()}}:                                  "Config.Store must be nil",
		{Store: memstore.NewTenants(), MaxOpen: -1}:                                                                "must not be negative",
		{Store: memstore.NewTenants(), Config: svc.Config{Keys: svc.KeyConfig{UserPrefix: "?"}}}:                   "UserPrefix",
		{Store: memstore.NewTenants(), Config: svc.Config{Sources: svc.SourceConfig{SealingKey: []byte("short")}}}: "SealingKey",
	} {
		if _, err := svc.NewTenants(*config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Use of an open tenant costs next to nothing.
func BenchmarkUseTenant(b *testing.B) {
	in, err := svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants()})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Create(b.Context(), "a"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	ctx := b.Context()
	for b.Loop() {
		_ = in.Use(ctx, "a", func(*svc.Service) error { return nil })
	}
}
