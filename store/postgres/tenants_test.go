package postgres_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

func openTenants(t *testing.T, url string, options postgres.Options) *postgres.Tenants {
	t.Helper()
	tenants := must(postgres.OpenTenants(t.Context(), url, fewer(patiently(options))))
	t.Cleanup(func() { is.New(t).NoErr(tenants.Close()) })
	return tenants
}

// tenantStore opens the Store of a tenant until the test ends.
func tenantStore(t *testing.T, in *postgres.Tenants, tenant svc.Tenant) *postgres.Store {
	t.Helper()
	store, end, err := in.OpenTenant(t.Context(), tenant)
	is.New(t).NoErr(err)
	t.Cleanup(func() { _ = end() })
	return store.(*postgres.Store)
}

func made(t *testing.T, in *postgres.Tenants, name string) svc.Tenant {
	return must(in.CreateTenant(t.Context(), name, svc.TenantActive, time.Now()))
}

// The Store of a tenant keeps every promise of a Store. The role is no superuser.
func TestStoreOfTenant(t *testing.T) {
	longtest.Parallel(t, "the rules of storetest")
	url := pgtest.Database(t)
	in := openTenants(t, url, postgres.Options{SynchronousCommit: "off"})
	tenant := made(t, in, "a")
	db, own := pgtest.Open(t, url), pgtest.Open(t, pgtest.With(t, url, "search_path", in.Schema(tenant)))
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, own)
		must(db.Exec("DELETE FROM svc_outbox"))
		store := tenantStore(t, in, tenant)
		must(store.Changes(t.Context(), 0)) // it notices that the database has gone back
		return both{store, in.Outbox()}
	})
}

// The list keeps its promises, too.
func TestListOfTenants(t *testing.T) {
	longtest.Parallel(t, "the rules of a list of tenants; SQLite has the same list")
	url, n := pgtest.Database(t), 0
	db := pgtest.Open(t, url)
	storetest.RunTenants(t, func(t *testing.T) svc.TenantStore {
		n++
		schema := fmt.Sprint("list", n) // faster than a database for each rule
		must(db.Exec("CREATE SCHEMA " + schema))
		return openTenants(t, pgtest.With(t, url, "search_path", schema), postgres.Options{SynchronousCommit: "off"})
	})
}

// both is the Store of a tenant, with the deliveries of the outbox that it shares.
type both struct {
	*postgres.Store
	outbox svc.OutboxStore
}

func (b both) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	return b.outbox.DeleteEvents(ctx, ids)
}

func (b both) ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
	return b.outbox.ClaimEvents(ctx, now, until, limit)
}

// It keeps them in a transaction of the host, too, in either kind.
func TestTenantInTransaction(t *testing.T) {
	is := parallel(t)
	url := listURL(t)
	in := openTenants(t, url, postgres.Options{})
	a, b := made(t, in, "a"), made(t, in, "b")
	storeA, storeB := tenantStore(t, in, a), tenantStore(t, in, b)
	for i, commit := range []bool{false, true} {
		id := fmt.Sprint("u", i)
		tx := must(in.DB().BeginTx(t.Context(), nil))
		inside := sqlstore.Tx(tx, in.Dialect(a))
		is.NoErr(sqltest.AddUsers(t.Context(), inside, id))
		must(tx.Exec("SELECT 1"))
		if commit {
			is.NoErr(tx.Commit())
		} else {
			is.NoErr(tx.Rollback())
		}
		is.Equal(hasUser(t, storeA, id), commit)
		is.True(!hasUser(t, storeB, id))
	}
	pool := must(pgxpool.New(t.Context(), url))
	defer pool.Close()
	tx := must(pool.Begin(t.Context()))
	tenants := must(svc.NewTenants(svc.TenantsConfig{Store: in}))
	defer tenants.Close()
	is.NoErr(tenants.Use(t.Context(), "a", func(service *svc.Service) error {
		_, err := service.WithTx(in.Tx(tx, b)).Users.Create(t.Context(), svc.Host, svc.User{ID: "astray"})
		is.Equal(svc.ErrorCode(err), svc.CodeInternal)
		is.True(strings.Contains(fmt.Sprint(errors.Unwrap(err)), "another tenant"))
		return failure(service.WithTx(in.Tx(tx, a)).Users.Create(t.Context(), svc.Host, svc.User{ID: "here"}))
	}))
	is.NoErr(sqltest.AddUsers(t.Context(), in.Tx(tx, b), "pgx"))
	is.NoErr(tx.Commit(t.Context()))
	is.True(hasUser(t, storeB, "pgx") && hasUser(t, storeA, "here"))
	is.True(!hasUser(t, storeA, "pgx") && !hasUser(t, storeB, "astray"))
}

func hasUser(t *testing.T, store svc.Store, id string) bool {
	found := must(store.Access(t.Context(), svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: id}}))
	return found.User != nil
}

// Names are data: the database has numbered schemas. One that is there already is never a new tenant's, and stays.
func TestSchemasOfTenants(t *testing.T) {
	is := parallel(t)
	url := pgtest.Database(t)
	in, db := openTenants(t, url, postgres.Options{}), pgtest.Open(t, url)
	for i, name := range []string{`"; DROP SCHEMA public CASCADE; --`, "pg_catalog", "public"} {
		tenant := made(t, in, name)
		if i == 1 {
			is.NoErr(in.DropTenant(t.Context(), tenant.Number))
		}
	}
	must(db.Exec("CREATE SCHEMA svc_t4")) // of a list that is newer than this one
	_, err := in.CreateTenant(t.Context(), "new", svc.TenantActive, time.Now())
	is.True(strings.Contains(fmt.Sprint(err), "no tenant has the number of the schema svc_t4"))
	is.True(errors.Is(failure(in.Tenant(t.Context(), "new")), svc.ErrNotFound))
	is.Equal(sqltest.Value[string](t, db, `SELECT string_agg(nspname, ' ' ORDER BY nspname) FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%'`), "information_schema public svc_t1 svc_t3 svc_t4")
}

// The tables that a new tenant gets at once are those that the migrations make one after the other.
func TestTablesOfTenants(t *testing.T) {
	is := long(t, "that the tables of a tenant are those of the migrations")
	url := listURL(t)
	in, db := openTenants(t, url, postgres.Options{}), pgtest.Open(t, url)
	tables := func(schema string) (all []string) {
		for _, line := range sqltest.Column(t, db, `
			SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '') || ' ' ||
				COALESCE(collation_name, '') FROM information_schema.columns WHERE table_schema = $1 AND table_name NOT LIKE 'svc_tenant%'
			UNION ALL SELECT replace(indexdef, $1 || '.', '') FROM pg_indexes WHERE schemaname = $1 AND tablename NOT LIKE 'svc_tenant%'
			UNION ALL SELECT conrelid::regclass::TEXT || ' ' || conname || ' ' || pg_get_constraintdef(c.oid) FROM pg_constraint c
				JOIN pg_namespace n ON n.oid = c.connamespace WHERE nspname = $1 AND conname NOT LIKE 'svc_tenant%'
			ORDER BY 1`, schema) {
			all = append(all, strings.ReplaceAll(line, schema+".", ""))
		}
		return all
	}
	want, have := tables(schemaOf(t, url)), tables(in.Schema(made(t, in, "a")))
	is.True(len(want) > 150)
	for _, line := range slices.Concat(want, have) {
		expect.Holds(t, slices.Contains(want, line) && slices.Contains(have, line), "both have ", line)
	}
}

// Services of two processes hear of each other's changes, by a notification or by the poll.
func TestTenantsHearEachOther(t *testing.T) {
	longtest.Parallel(t, "tenants of two processes")
	for name, options := range map[string]postgres.Options{"notified": {}, "polled": {NoNotify: true}} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			url := listURL(t)
			here, there := serviceTenants(t, url, options), serviceTenants(t, url, options)
			must(here.Create(t.Context(), "a"))
			// refused returns the time after which the other process refuses a revoked key.
			refused := func(before func()) time.Duration {
				issued := here.Issue("a")
				is.NoErr(there.Accepts("a", issued.Key))
				time.Sleep(time.Second) // the other process follows, and caches the key
				is.NoErr(there.Accepts("a", issued.Key))
				began := time.Now()
				before()
				here.Revoke("a", issued)
				for there.Accepts("a", issued.Key) == nil {
					if time.Since(began) > time.Minute {
						t.Fatal("a revoked key is accepted for too long")
					}
					time.Sleep(time.Millisecond)
				}
				return time.Since(began)
			}
			if name == "polled" {
				refused(func() {})
			} else {
				hearsWithoutPoll(t, pgtest.Open(t, url), refused)
			}
			is.NoErr(here.Drop(t.Context(), "a"))
			is.Equal(there.Code("a"), svc.CodeNotFound)
		})
	}
}

// hearsWithoutPoll locks a table that the poll reads, so that only a notification tells of a change
// for as long as the last poll counts. A busy machine may need more tries.
func hearsWithoutPoll(t *testing.T, db *sql.DB, refused func(before func()) time.Duration) {
	t.Helper()
	const locked = 2 * time.Second
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		tx := must(db.Begin())
		took := refused(func() {
			time.AfterFunc(locked, func() { _ = tx.Rollback() })
			must(tx.Exec("LOCK TABLE svc_generation IN ACCESS EXCLUSIVE MODE"))
		})
		_ = tx.Rollback() // it may be unlocked
		if took < locked {
			return
		}
	}
	t.Fatal("notifications do not come")
}

// A notification that the follower cannot use, as it comes late, does not keep it busy.
func TestFollowerOfTenantsRests(t *testing.T) {
	longtest.Parallel(t, "how often a follower asks")
	url := listURL(t)
	asked := &counting{TenantStore: openTenants(t, url, postgres.Options{})}
	sqltest.NewTenants(t, asked, svc.Config{})
	there := serviceTenants(t, url, postgres.Options{})
	for i := range 3 {
		time.Sleep(700 * time.Millisecond)
		must(there.Create(t.Context(), fmt.Sprint("t", i)))
	}
	time.Sleep(time.Second)
	if changes := asked.changes.Load(); changes > 50 {
		t.Errorf("it has asked %d times in three seconds", changes)
	}
}

type counting struct {
	svc.TenantStore
	changes atomic.Int64
}

func (c *counting) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	c.changes.Add(1)
	return c.TenantStore.Changes(ctx, since)
}

func serviceTenants(t *testing.T, url string, options postgres.Options) sqltest.Tenants {
	t.Helper()
	return sqltest.NewTenants(t, openTenants(t, url, options), svc.Config{})
}

// The events of a host's transaction are delivered, with the name of the tenant, whether or not the tenant is open.
func TestOutboxOfTenants(t *testing.T) {
	is := long(t, "the outbox of tenants")
	in := openTenants(t, listURL(t), postgres.Options{})
	events := make(chan svc.Event, 10)
	tenants := sqltest.NewTenants(t, in, svc.Config{Events: svc.EventConfig{OnEvent: func(_ context.Context, e svc.Event) { events <- e }}})
	tenant := must(tenants.Create(t.Context(), "a"))
	var tx *sql.Tx
	is.NoErr(tenants.Use(t.Context(), "a", func(s *svc.Service) (err error) {
		if tx, err = in.DB().BeginTx(t.Context(), nil); err != nil {
			return err
		}
		inside := s.WithTx(sqlstore.Tx(tx, in.Dialect(tenant)))
		return inside.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "u"}}})
	}))
	is.NoErr(tenants.Suspend(t.Context(), "a"))
	is.Equal(len(events), 0)
	is.NoErr(tx.Commit())
	sqltest.ExpectEvent(t, events, "a", "u")
}

// A tenant moves to a database of its own and back, under another name.
func TestTenantMoves(t *testing.T) {
	is := parallel(t)
	in := openTenants(t, listURL(t), postgres.Options{})
	a, b := made(t, in, "a"), made(t, in, "b")
	is.NoErr(sqltest.AddUsers(t.Context(), tenantStore(t, in, a), "u", "v"))
	alone := open(t, migrated(t), postgres.Options{})
	is.True(sqlstore.Copy(t.Context(), tenantStore(t, in, a), tenantStore(t, in, a)) != nil) // itself
	is.NoErr(sqlstore.Copy(t.Context(), tenantStore(t, in, a), alone))
	is.NoErr(sqlstore.Copy(t.Context(), alone, tenantStore(t, in, b)))
	is.True(hasUser(t, tenantStore(t, in, b), "v"))
	third := made(t, in, "c")
	is.NoErr(sqlstore.Copy(t.Context(), tenantStore(t, in, a), tenantStore(t, in, third)))
	is.True(hasUser(t, tenantStore(t, in, third), "u"))
}

// All tenants together have the connections of the options and one that listens.
func TestConnectionsOfTenants(t *testing.T) {
	long(t, "how many connections tenants have")
	url := pgtest.Database(t)
	most := longtest.Times(3, 0) // 0: the default, with more tenants
	in := must(postgres.OpenTenants(t.Context(), url, patiently(postgres.Options{MaxOpen: most})))
	t.Cleanup(func() { _ = in.Close() })
	sqltest.NewTenants(t, in, svc.Config{}).UseMany(longtest.Times(4, 30))
	db := pgtest.Open(t, url)
	expect.Soon(t, "more connections are open", func() bool { // the server lets those go a moment later that are closed
		return sqltest.Value[int](t, db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`) <= cmp.Or(most, 9)+1
	})
}

// A tenant whose calls all wait for a lock of the host leaves a connection to the others.
func TestLockedTenant(t *testing.T) {
	is := long(t, "a tenant that a host has locked")
	url := pgtest.Database(t)
	in := openTenants(t, url, postgres.Options{MaxOpen: 9})
	locked, quiet := made(t, in, "locked"), made(t, in, "quiet")
	host := must(pgtest.Open(t, url).Begin())
	defer host.Rollback()
	must(host.Exec(`UPDATE ` + in.Schema(locked) + `.svc_generation SET value = value`))
	writes, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	store := tenantStore(t, in, locked)
	for i := range 30 {
		all.Go(func() { _ = sqltest.AddUsers(writes, store, fmt.Sprint(i)) })
	}
	db := pgtest.Open(t, url)
	waiting := func() int {
		return sqltest.Value[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	expect.Soon(t, "the calls do not wait", func() bool { return waiting() >= 5 }) // of these connections, 2 are never for such calls
	is.True(!hasUser(t, tenantStore(t, in, quiet), "u"))
	is.Equal(waiting(), 5)
}

// A tenant whose tables are newer than the program, or broken, stops no other.
func TestBrokenTenant(t *testing.T) {
	is := long(t, "tenants whose tables are broken")
	url := pgtest.Database(t)
	in := openTenants(t, url, postgres.Options{})
	tenants := sqltest.NewTenants(t, in, svc.Config{})
	db := pgtest.Open(t, url)
	for i, breaks := range []string{
		"INSERT INTO svc_t1.svc_migrations VALUES (99)",
		"DROP TABLE svc_t2.svc_generation CASCADE",
		"DROP SCHEMA svc_t3 CASCADE", // lost, and not made anew: it would be empty
		"DROP SCHEMA svc_t4 CASCADE; CREATE SCHEMA svc_t4",
	} {
		name := fmt.Sprint("t", i+1)
		must(tenants.Create(t.Context(), name))
		must(db.Exec(breaks))
	}
	must(tenants.Create(t.Context(), "good"))
	for _, broken := range []string{"t1", "t3", "t4"} {
		is.Equal(tenants.Code(broken), svc.CodeUnavailable)
	}
	is.Equal(tenants.Code("good"), svc.CodeUnauthenticated)
	failed := map[string]string{}
	err := tenants.Migrate(t.Context(), func(m svc.Migration) {
		if m.Err != nil {
			failed[m.Tenant.Name] = m.Err.Error()
		}
	})
	is.True(strings.Contains(err.Error(), `tenant "t`))
	is.True(strings.Contains(failed["t1"], "version 99"))
	is.True(strings.Contains(failed["t3"], "svc_t3"))
	is.True(strings.Contains(failed["t4"], "svc_migrations"))
	is.Equal(failed["good"], "")
}
