package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

func openTenants(t *testing.T, folder string) *sqlite.Tenants {
	t.Helper()
	tenants := must(sqlite.OpenTenants(t.Context(), folder, sqlite.Options{Fast: true}))
	t.Cleanup(func() { is.New(t).NoErr(tenants.Close()) })
	return tenants
}

// The Store of a tenant keeps every promise of a Store.
func TestStoreOfTenant(t *testing.T) {
	longtest.Parallel(t, "the rules of storetest")
	in, n := openTenants(t, t.TempDir()), 0
	storetest.Run(t, func(t *testing.T) svc.Store {
		n++
		tenant := must(in.CreateTenant(t.Context(), fmt.Sprint("t", n), svc.TenantActive, time.Now()))
		store, end, err := in.OpenTenant(t.Context(), tenant)
		is.New(t).NoErr(err)
		t.Cleanup(func() { is.New(t).NoErr(errors.Join(end(), in.DropTenant(context.Background(), tenant.Number))) })
		return plain{store.(*sqlite.Store)}
	})
}

// While another tenant is busy, a storm of reads is held back.
func TestStormOfReads(t *testing.T) {
	t.Parallel()
	in := openTenants(t, t.TempDir())
	var stores []svc.Store
	for _, name := range []string{"storm", "quiet"} {
		tenant := must(in.CreateTenant(t.Context(), name, svc.TenantActive, time.Now()))
		store, end, err := in.OpenTenant(t.Context(), tenant)
		is.New(t).NoErr(err)
		defer end()
		stores = append(stores, store)
	}
	read := func(store svc.Store) {
		must(store.Access(t.Context(), svc.AccessQuery{KeyID: "none"}))
	}
	read(stores[1])
	var all sync.WaitGroup
	var reads atomic.Int64
	var ended atomic.Bool
	begun := time.Now()
	for range 32 {
		all.Go(func() {
			for !ended.Load() {
				read(stores[0])
				reads.Add(1)
			}
		})
	}
	for time.Since(begun) < 300*time.Millisecond {
		read(stores[1])
	}
	ended.Store(true)
	all.Wait()
	perSecond := float64(reads.Load()) / time.Since(begun).Seconds()
	if most := 2 * 1000 * runtime.GOMAXPROCS(0); perSecond > float64(most) { // twice what is said
		t.Errorf("%.0f reads in a second", perSecond)
	}
}

func TestListOfTenants(t *testing.T) {
	t.Parallel()
	made := t.TempDir()
	is.New(t).NoErr(openTenants(t, made).Close())
	storetest.RunTenants(t, func(t *testing.T) svc.TenantStore {
		folder := t.TempDir()
		is.New(t).NoErr(os.CopyFS(folder, os.DirFS(made))) // faster than to make its tables again
		return openTenants(t, folder)
	})
}

// plain claims with the clock of the suite, which is not that of the machine.
type plain struct{ *sqlite.Store }

func (p plain) ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
	return p.Store.Store.ClaimEvents(ctx, now, until, limit)
}

// Names are data: the folder has numbered files. A dropped tenant leaves none.
func TestFolderOfTenants(t *testing.T) {
	is := parallel(t)
	folder := filepath.Join(t.TempDir(), "new")
	in := openTenants(t, folder)
	for i, name := range []string{"..x", "tenants.db", "7.db"} {
		tenant := must(in.CreateTenant(t.Context(), name, svc.TenantActive, time.Now()))
		if i == 1 {
			is.NoErr(in.DropTenant(t.Context(), tenant.Number))
		}
	}
	is.Equal(must(os.Stat(folder)).Mode().Perm(), os.FileMode(0o700))
	is.Equal(filesOf(t, folder, ".db"), []string{"1.db", "3.db", "tenants.db"})
}

func filesOf(t *testing.T, folder, suffix string) (names []string) {
	for _, entry := range must(os.ReadDir(folder)) {
		if strings.HasSuffix(entry.Name(), suffix) {
			names = append(names, entry.Name())
		}
	}
	return names
}

// A tenant whose file cannot be made does not exist. A file that is there already is never a new tenant's, and stays.
func TestTenantWithoutFile(t *testing.T) {
	is := parallel(t)
	folder := t.TempDir()
	in := openTenants(t, folder)
	is.NoErr(os.Mkdir(filepath.Join(folder, "1.db"), 0o700))
	for _, name := range []string{"2.db", "3.db-wal"} {
		is.NoErr(os.WriteFile(filepath.Join(folder, name), []byte("of another list"), 0o600))
	}
	for i := range 3 {
		_, err := in.CreateTenant(t.Context(), "a", svc.TenantActive, time.Now())
		is.True(strings.Contains(fmt.Sprint(err), fmt.Sprint(i+1, ".db")))
		is.True(errors.Is(failure(in.Tenant(t.Context(), "a")), svc.ErrNotFound))
	}
	must(in.CreateTenant(t.Context(), "a", svc.TenantActive, time.Now()))
	is.Equal(filesOf(t, folder, ".db"), []string{"1.db", "2.db", "4.db", "tenants.db"})
	is.Equal(string(must(os.ReadFile(filepath.Join(folder, "2.db")))), "of another list")
}

// A tenant whose file is lost, or empty as after a bad copy, is unavailable: it is not made anew.
func TestLostFile(t *testing.T) {
	is := parallel(t)
	in := openTenants(t, t.TempDir())
	for _, lose := range []func(path string) error{os.Remove, func(path string) error { return os.Truncate(path, 0) }} {
		tenant := must(in.CreateTenant(t.Context(), "a", svc.TenantActive, time.Now()))
		is.NoErr(lose(in.Path(tenant)))
		_, _, err := in.OpenTenant(t.Context(), tenant)
		is.True(errors.Is(err, svc.ErrUnavailable))
		is.True(errors.Is(in.MigrateTenant(t.Context(), tenant), svc.ErrUnavailable))
		is.NoErr(in.DropTenant(t.Context(), tenant.Number))
	}
}

// A tenant that a newer program has migrated is refused, as when that happens while this program runs.
func TestNewerTenantIsRefused(t *testing.T) {
	is := is.New(t)
	in := openTenants(t, t.TempDir())
	db := raw(t, in.Path(must(in.CreateTenant(t.Context(), "t", svc.TenantActive, time.Now()))))
	must(db.Exec("INSERT INTO svc_migrations (version) VALUES (99)"))
	is.NoErr(db.Close())
	err := sqltest.NewTenants(t, in, svc.Config{}).Accepts("t", "svcu_x")
	is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
	is.True(strings.Contains(err.Error(), "version 99"))
}

// Another process sees a revocation with its next request, and a suspended tenant soon.
func TestTenantsOfTwoProcesses(t *testing.T) {
	is := parallel(t)
	folder := t.TempDir()
	here := sqltest.NewTenants(t, openTenants(t, folder), svc.Config{})
	there := sqltest.NewTenants(t, openTenants(t, folder), svc.Config{})
	must(here.Create(t.Context(), "a"))
	for range 20 {
		issued := here.Issue("a")
		is.NoErr(there.Accepts("a", issued.Key))
		here.Revoke("a", issued)
		is.Equal(svc.ErrorCode(there.Accepts("a", issued.Key)), svc.CodeUnauthenticated)
	}
	is.NoErr(here.Suspend(t.Context(), "a"))
	expect.Soon(t, "the other process serves it", func() bool { return there.Code("a") == svc.CodeNotFound })
}

// The events of a host's transaction are delivered: at once, and after a crash in which nobody delivered them.
func TestOutboxOfTenants(t *testing.T) {
	is := parallel(t)
	folder := t.TempDir()
	events := make(chan svc.Event, 10)
	config := svc.Config{Events: svc.EventConfig{OnEvent: func(_ context.Context, e svc.Event) { events <- e }}}
	write := func(in *sqlite.Tenants, tenant svc.Tenant, s *svc.Service, id string) {
		tx := must(in.Opened(tenant).DB().BeginTx(t.Context(), nil))
		inside := s.WithTx(sqlstore.Tx(tx, sqlite.Dialect()))
		is.NoErr(inside.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: id}}}))
		is.NoErr(tx.Commit())
	}
	expect := func(id string) { t.Helper(); sqltest.ExpectEvent(t, events, "a", id) }
	in := openTenants(t, folder)
	tenants := sqltest.NewTenants(t, in, config)
	tenant := must(tenants.Create(t.Context(), "a"))
	is.True(in.Opened(tenant) == nil)
	is.NoErr(tenants.Use(t.Context(), "a", func(s *svc.Service) error {
		time.Sleep(1500 * time.Millisecond) // the outbox was found empty
		write(in, tenant, s, "u")
		return nil
	}))
	expect("u")
	is.NoErr(tenants.Use(t.Context(), "a", func(s *svc.Service) error {
		write(in, tenant, s, "v")
		return nil
	}))
	is.NoErr(tenants.Close()) // delivers the rest
	expect("v")

	// As after a crash, a file is not closed, or was closed by a process that delivers nothing.
	other := openTenants(t, folder)
	for _, id := range []string{"w", "x"} {
		store, end, err := other.OpenTenant(t.Context(), tenant)
		is.NoErr(err)
		is.NoErr(store.(*sqlite.Store).AddEvents(t.Context(), []svc.Event{{
			ID: uuid.Must(uuid.NewV7()), Time: time.Now(), Actor: svc.Identity{Kind: svc.KindHost},
			Action: event.AccessWritten, Target: svc.Target{Kind: event.TargetUser, ID: id}, Tenant: "a",
		}}))
		if id == "w" {
			defer end()
		} else {
			is.NoErr(end())
			is.Equal(filesOf(t, folder, "-events"), []string{"1.db-events"})
		}
		later := sqltest.NewTenants(t, openTenants(t, folder), config)
		expect(id)
		is.NoErr(later.Close())
		if id == "x" {
			is.Equal(len(filesOf(t, folder, "-events")), 0)
		}
	}
}

// OnEvent may use tenants, also its own, while that one is suspended, dropped or closed.
func TestOnEventUsesTenants(t *testing.T) {
	is := parallel(t)
	in, ends := openTenants(t, t.TempDir()), []func(sqltest.Tenants) error{
		func(tenants sqltest.Tenants) error { return tenants.Suspend(t.Context(), "a") },
		func(tenants sqltest.Tenants) error {
			return errors.Join(tenants.Resume(t.Context(), "a"), tenants.Use(t.Context(), "a", func(*svc.Service) error { return nil }), tenants.Close())
		},
	}
	var tenants sqltest.Tenants
	var told, used atomic.Int32
	tenants = sqltest.NewTenants(t, in, svc.Config{Events: svc.EventConfig{OnEvent: func(ctx context.Context, e svc.Event) {
		if e.Target.Kind != event.TargetUser {
			return
		}
		told.Add(1)
		time.Sleep(100 * time.Millisecond) // the tenant ends meanwhile
		if tenants.Use(ctx, "b", func(*svc.Service) error { return nil }) == nil {
			used.Add(1)
		}
		_ = tenants.Use(ctx, "a", func(*svc.Service) error { return nil })
	}}})
	for _, name := range []string{"a", "b"} {
		must(tenants.Create(t.Context(), name))
	}
	for i, end := range ends {
		is.NoErr(tenants.Use(t.Context(), "a", func(s *svc.Service) error {
			tx := must(in.Opened(s.Tenant()).DB().BeginTx(t.Context(), nil))
			inside := s.WithTx(sqlstore.Tx(tx, sqlite.Dialect()))
			must(inside.Users.Create(t.Context(), svc.Host, svc.User{ID: fmt.Sprint(i)}))
			return tx.Commit()
		}))
		ended := make(chan error, 1)
		go func() { ended <- end(tenants) }()
		select {
		case err := <-ended:
			is.NoErr(err)
		case <-time.After(time.Minute):
			t.Fatal("it waits for OnEvent, and OnEvent for it")
		}
		if i == 0 {
			is.NoErr(tenants.Resume(t.Context(), "a"))
		}
	}
	is.Equal(told.Load(), int32(len(ends)))
	is.True(used.Load() > 0)
}

// A transaction of the host holds the writer of a file. Reads of that tenant, and other tenants, wait for nobody.
func TestHostHoldsATenant(t *testing.T) {
	is := parallel(t)
	in := openTenants(t, t.TempDir())
	tenants := sqltest.NewTenants(t, in, svc.Config{})
	for _, name := range []string{"a", "b"} {
		must(tenants.Create(t.Context(), name))
	}
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	add := func(s *svc.Service, id string) error {
		return failure(s.Users.Create(soon, svc.Host, svc.User{ID: id}))
	}
	is.NoErr(tenants.Use(soon, "a", func(a *svc.Service) error {
		tx := must(in.Opened(a.Tenant()).DB().BeginTx(soon, nil))
		is.NoErr(add(a.WithTx(sqlstore.Tx(tx, sqlite.Dialect())), "of the host"))
		waiting, end := context.WithCancel(soon)
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() { _, _ = a.Users.Create(waiting, svc.Host, svc.User{ID: fmt.Sprint(i)}) })
		}
		for i := range 20 {
			for _, err := range a.Users.List(soon, svc.Host, svc.UserQuery{}) {
				is.NoErr(err)
			}
			is.NoErr(tenants.Use(soon, "b", func(b *svc.Service) error { return add(b, fmt.Sprint(i)) }))
		}
		end()
		writers.Wait()
		return tx.Commit()
	}))
}

// Idle tenants keep few files open, and closed ones none.
func TestFilesOfTenants(t *testing.T) {
	is := parallel(t)
	folder := t.TempDir()
	store := openTenants(t, folder)
	tenants := sqltest.NewTenants(t, store, svc.Config{})
	count := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("NOT TESTED: no list of open files here")
		}
		n := 0
		for _, fd := range open {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, folder) && !strings.Contains(to, "tenants.db") {
				n++
			}
		}
		return n
	}
	const many = 20
	tenants.UseMany(many)
	t.Logf("%d files for %d tenants in use", count(), many)
	expect.Soon(t, "idle tenants keep their files open", func() bool { return count() <= 3*many })
	is.NoErr(tenants.Close())
	is.Equal(count(), 0)
}
