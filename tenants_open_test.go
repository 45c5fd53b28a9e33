package svc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// A tenant that is suspended elsewhere while it opens is not served, and delays no news about others.
func TestTenantEndsWhileItOpens(t *testing.T) {
	is, store := is.New(t), memstore.NewTenants()
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
	expect.Soon(t, "waited too long", gone("b"))
	close(open)
	<-ended
	expect.Soon(t, "waited too long", gone("slow"))
}

type countedTenants struct {
	svc.TenantStore
	open, opened atomic.Int64
	fails        func(tenant svc.Tenant) error
	unsettled    []string
}

func (c *countedTenants) Unsettled(context.Context) ([]string, error) { return c.unsettled, nil }

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

// A caller that leaves, or whose time is over, learns that, whatever it waits for: a tenant that opens, its turn to open
// one, a call of a tenant that ends.
func TestCallersThatLeaveATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		store := &countedTenants{TenantStore: memstore.NewTenants(), fails: func(tenant svc.Tenant) error {
			if strings.HasPrefix(tenant.Name, "slow") {
				<-hold
			}
			return nil
		}}
		in := newTenants(t, svc.TenantsConfig{Store: store})
		names := []string{"used", "dropped"}
		for i := range 100 { // more than open at once
			names = append(names, fmt.Sprint("slow", i))
		}
		makeTenants(t, in, append(names, "late")...)
		nothing := func(*svc.Service) error { return nil }
		calls := map[string]func(context.Context) error{
			"suspend": func(ctx context.Context) error { return in.Suspend(ctx, "used") },
			"drop":    func(ctx context.Context) error { return in.Drop(ctx, "dropped") },
		}
		for _, name := range names[2:] {
			calls[name] = func(ctx context.Context) error { return in.Use(ctx, name, nothing) }
		}
		use := func(name string, do func() error) error {
			return in.Use(t.Context(), name, func(*svc.Service) error { return do() })
		}
		must(0, use("used", func() error {
			return use("dropped", func() error {
				var wait sync.WaitGroup
				for name, call := range calls {
					wait.Go(func() {
						ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
						defer leave()
						err := call(ctx)
						if svc.ErrorCode(err) != svc.CodeUnavailable || !errors.Is(err, context.DeadlineExceeded) ||
							!strings.Contains(err.Error(), "its time is over") {
							t.Errorf("%s: %v", name, err)
						}
					})
				}
				wait.Wait()
				return nil
			})
		}))
		for range 2 * 4 { // of which one opens it, and the others give their turns back
			go func() { expect.Equal(t, "late", in.Use(t.Context(), "late", nothing), nil) }()
		}
		synctest.Wait()
		close(hold)
		pass(5 * time.Second)
	})
}

// Idle tenants are closed, and those above MaxOpen. One that is used again opens again.
func TestIdleTenantsClose(t *testing.T) { synctest.Test(t, idleTenantsClose) }

func idleTenantsClose(t *testing.T) {
	store := &countedTenants{TenantStore: memstore.NewTenants()}
	in := newTenants(t, svc.TenantsConfig{Store: store, MaxOpen: 2, IdleTime: 3 * time.Second})
	names := []string{"a", "b", "c", "d"}
	makeTenants(t, in, names...)
	secrets := map[string]string{}
	for _, name := range names {
		secrets[name] = issueIn(t, in, name)
		must(bearerIn(t.Context(), in, name, secrets[name])) // which takes memory
	}
	is.New(t).Equal(store.open.Load(), int64(4))
	pass(2 * time.Second)
	is.New(t).Equal(store.open.Load(), int64(2))
	expect.Soon(t, "waited too long", func() bool { return store.open.Load() == 0 })
	for _, name := range names {
		must(bearerIn(t.Context(), in, name, secrets[name]))
	}
}

// A store that panics when it is closed ends its tenant, which can be opened again, and not the process.
func TestTenantWhoseStorePanicsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := &countedTenants{TenantStore: memstore.NewTenants()}, &syncBuffer{}
		in := newTenants(t, svc.TenantsConfig{Store: panicsAtTheEnd{store}, IdleTime: time.Second, Config: svc.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}})
		makeTenants(t, in, "a")
		secret := issueIn(t, in, "a")
		expect.Soon(t, "waited too long", func() bool { return store.open.Load() == 0 && strings.Contains(log.String(), "cannot close a tenant") })
		must(bearerIn(t.Context(), in, "a", secret))
	})
}

// A tenant that cannot be opened leaves no open store, and its error stays the answer when the store panics as well.
func TestTenantThatCannotOpenClosesItsStore(t *testing.T) {
	is, store := is.New(t), &countedTenants{TenantStore: memstore.NewTenants()}
	in := newTenants(t, svc.TenantsConfig{
		Store: panicsAtTheEnd{store},
		Each:  func(_ svc.Tenant, c *svc.Config) error { c.Memory.Keys = -1; return nil },
	})
	makeTenants(t, in, "a")
	err := in.Use(t.Context(), "a", func(*svc.Service) error { return nil })
	is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
	is.True(strings.Contains(err.Error(), "Config.Memory.Keys"))
	is.Equal(store.opened.Load(), int64(1))
	is.Equal(store.open.Load(), int64(0))
}

type lostTenants struct{ svc.TenantStore }

func (lostTenants) Changes(context.Context, int64) (svc.StoreChanges, error) {
	return svc.StoreChanges{}, svc.ErrUnavailable
}

func TestTenantsPing(t *testing.T) {
	is, store := is.New(t), &countedTenants{TenantStore: memstore.NewTenants()}
	is.NoErr(newTenants(t, svc.TenantsConfig{Store: store}).Ping(t.Context()))
	is.Equal(svc.ErrorCode(newTenants(t, svc.TenantsConfig{Store: lostTenants{store}}).Ping(t.Context())), svc.CodeUnavailable)
	is.Equal(store.opened.Load(), int64(0))
}

type panicsAtTheEnd struct{ svc.TenantStore }

func (p panicsAtTheEnd) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	store, end, err := p.TenantStore.OpenTenant(ctx, tenant)
	return store, func() error { _ = end(); panic("at the end") }, err
}

func TestTenantOpensOnce(t *testing.T) {
	is, store := is.New(t), &countedTenants{TenantStore: memstore.NewTenants()}
	in := newTenants(t, svc.TenantsConfig{Store: store})
	makeTenants(t, in, "a")
	secret := issueIn(t, in, "a")
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 200 {
				expect.Equal(t, "a", errorOf(bearerIn(t.Context(), in, "a", secret)), nil)
			}
		})
	}
	all.Wait()
	is.Equal(store.opened.Load(), int64(1))
	for range 50 {
		is.NoErr(in.Suspend(t.Context(), "a"))
		is.Equal(store.open.Load(), int64(0))
		is.NoErr(in.Resume(t.Context(), "a"))
		must(bearerIn(t.Context(), in, "a", secret))
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
	in := newTenants(t, svc.TenantsConfig{Store: store, Config: svc.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
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
	expect.Soon(t, "waited too long", func() bool {
		_, err := bearerIn(t.Context(), in, "bad", "x")
		return svc.ErrorCode(err) == svc.CodeUnauthenticated
	})
}

// Events that a crash has left in a tenant that cannot be opened are logged; those of a suspended one wait.
func TestTenantCannotSettle(t *testing.T) {
	t.Parallel()
	store := &countedTenants{TenantStore: memstore.NewTenants()}
	in := newTenants(t, svc.TenantsConfig{Store: store})
	makeTenants(t, in, "asleep", "bad")
	must(0, in.Suspend(t.Context(), "asleep"))
	must(0, in.Close())
	for _, c := range []struct{ fails, said string }{{"asleep", ""}, {"bad", "cannot deliver the events that a crash has left"}} {
		var log syncBuffer
		store.unsettled = []string{c.fails}
		store.fails = func(svc.Tenant) error { return errors.New("disk full") }
		again := must(svc.NewTenants(svc.TenantsConfig{Store: store, Config: svc.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Events: svc.EventConfig{OnEvent: func(context.Context, svc.Event) {}},
		}}))
		if c.said != "" {
			expect.Soon(t, "waited too long", func() bool { return strings.Contains(log.String(), c.said) })
		}
		must(0, again.Close())
		expect.Holds(t, c.said != "" || !strings.Contains(log.String(), "cannot deliver"), log.String())
	}
}

// Close waits for a call in a tenant that was suspended in the meantime.
func TestCloseWaitsForASuspendedTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, closed := newTenants(t, svc.TenantsConfig{}), make(chan error, 1)
		makeTenants(t, in, "a")
		must(0, in.Use(t.Context(), "a", func(*svc.Service) error {
			go func() { _ = in.Suspend(context.Background(), "a") }() // it waits, too
			synctest.Wait()
			go func() { closed <- in.Close() }()
			synctest.Wait()
			is.New(t).Equal(len(closed), 0)
			return nil
		}))
		must(0, <-closed)
	})
}

// A tenant that is closed leaves nothing running.
func TestClosedTenantDeliversNothing(t *testing.T) {
	in := newTenants(t, svc.TenantsConfig{Config: svc.Config{Events: svc.EventConfig{OnEvent: func(context.Context, svc.Event) {}}}})
	makeTenants(t, in, "a")
	openAndClose := func() {
		_ = issueIn(t, in, "a")
		must(0, in.Suspend(t.Context(), "a"))
		must(0, in.Resume(t.Context(), "a"))
	}
	openAndClose()
	before := runtime.NumGoroutine()
	for range 100 {
		openAndClose()
	}
	expect.Soon(t, "waited too long", func() bool { return runtime.NumGoroutine() < before+50 })
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
