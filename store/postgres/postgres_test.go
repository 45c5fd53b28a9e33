package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/storetest"
)

func TestMain(m *testing.M) {
	longtest.AtOnce(longtest.Times(6, pgtest.AtOnce)) // the long form has more connections in each test
	longtest.Short()
	m.Run()
	if err := unused.drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The suites do not wait for the disk, which is not what they are about.

// Nothing listens here: the suite checks the wake-ups itself. The short form leaves out the rule that writes
// 2,000 files: SQLite has it, with the same statements.
func TestStore(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	db, store := pgtest.Open(t, url), open(t, url, postgres.Options{SynchronousCommit: "off", NoNotify: true})
	storetest.Run(t, func(t *testing.T) svc.Store {
		if strings.Contains(t.Name(), "limits.SourceFiles") {
			longtest.Test(t, "how many files a source keeps")
		}
		empty(t, db, store)
		return store
	})
}

// limited is the Timeout of tests that are about it. In the others a call waits for an answer of the server, which a busy
// machine may delay by more than the 4 s of a default Store. After one late answer a limit also fails the calls that follow.
const limited = 30 * time.Second

func patiently(options postgres.Options) postgres.Options {
	if options.Timeout == 0 {
		options.Timeout = -1
	}
	return options
}

// fewer gives a pool few connections, unless options have a number.
func fewer(options postgres.Options) postgres.Options {
	if options.MaxOpen == 0 {
		options.MaxOpen = pgtest.Connections
	}
	return options
}

// open opens a store that is closed when the test ends. Its calls wait as long as it takes, unless options have a Timeout.
func open(t *testing.T, url string, options postgres.Options) *postgres.Store {
	t.Helper()
	store := must(postgres.Open(t.Context(), url, fewer(patiently(options))))
	t.Cleanup(func() { is.New(t).NoErr(store.Close()) })
	return store
}

// recovery bounds the wait for good answers after a restart of the server. The first comes within
// 5 s, and a busy machine may add to them.
const recovery = time.Minute

// promised is how long a call may wait for a server that does not answer. patient allows for a machine that is busy, or stands
// still twice. Without the promise, a call waits 30 s.
const (
	promised = 5 * time.Second
	patient  = promised + 20*time.Second
)

// calls are one of each kind: statements of their own, snapshots, mutations, and those that wait.
var calls = map[string]func(ctx context.Context, store svc.Store) error{
	"read": func(ctx context.Context, store svc.Store) error {
		return failure(sqltest.ReadKey(ctx, store, "none"))
	},
	"list": func(ctx context.Context, store svc.Store) error {
		return failure(store.Templates(ctx, svc.TemplatePage{TemplateQuery: svc.TemplateQuery{Limit: 10}}))
	},
	"snapshot": func(ctx context.Context, store svc.Store) error {
		return failure(store.ReadAccess(ctx, svc.AccessRead{}, func(svc.Bundle) error { return nil }))
	},
	"changes": func(ctx context.Context, store svc.Store) error { return failure(store.Changes(ctx, 0)) },
	"events": func(ctx context.Context, store svc.Store) error {
		return failure(store.(svc.OutboxStore).ClaimEvents(ctx, time.Now(), time.Now(), 10))
	},
	"mutation": func(ctx context.Context, store svc.Store) error {
		return store.CreateAPIKey(ctx, svc.APIKey{ID: rand.Text()})
	},
	"access": func(ctx context.Context, store svc.Store) error { return sqltest.AddUsers(ctx, store, "alice") },
	"read together": func(ctx context.Context, store svc.Store) error {
		return store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
			return failure(sqltest.ReadKey(ctx, tx, "none"))
		})
	},
	"together": func(ctx context.Context, store svc.Store) error {
		return store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return sqltest.AddUsers(ctx, tx, "bob") })
	},
}

func failure[T any](_ T, err error) error { return err }

// parallel lets a test run beside others, and returns its checks.
func parallel(t *testing.T) *is.I {
	t.Parallel()
	return is.New(t)
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// unanswered makes each call several times at once, and returns the longest time. All calls must fail, and none may
// say that its caller has left. Those that are later fail without a wait for the server.
func unanswered(t *testing.T, store svc.Store, times int, later bool) time.Duration {
	t.Helper()
	var group sync.WaitGroup
	began := time.Now()
	for name, call := range calls {
		for range times {
			group.Go(func() {
				err := call(context.Background(), store)
				if took := time.Since(began); !errors.Is(err, svc.ErrUnavailable) || took > patient {
					t.Errorf("%s: %v after %s", name, err, took)
				}
				if errors.Is(err, context.Canceled) {
					t.Errorf("%s: the caller has not left: %v", name, err)
				}
				if waited := strings.Contains(fmt.Sprint(err), "does not answer within"); waited && later {
					t.Errorf("%s: a later call waited for the server: %v", name, err)
				}
			})
		}
	}
	group.Wait()
	return time.Since(began)
}

// answered makes each call; none may fail.
func answered(t *testing.T, store svc.Store) {
	t.Helper()
	expect.Soon(t, "the store does not recover", func() bool { return errors.Is(calls["read"](t.Context(), store), svc.ErrNotFound) })
	for name, call := range calls {
		if err := call(t.Context(), store); err != nil && !errors.Is(err, svc.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Stats of a Service say whether its store listens.
func TestStats(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t), postgres.Options{})
	service := newHost(t, store).Service
	expect.Soon(t, "the store does not listen", func() bool { return service.Stats().Listening })
	deaf := open(t, migrated(t), postgres.Options{NoNotify: true})
	is.True(!newHost(t, deaf).Service.Stats().Listening)
}

// Tenants share an outbox, and each counts all of it.
func TestStatsOfTenants(t *testing.T) {
	is := is.New(t)
	in := openTenants(t, listURL(t), postgres.Options{})
	a, b := tenantStore(t, in, made(t, in, "a")), tenantStore(t, in, made(t, in, "b"))
	is.NoErr(a.AddEvents(t.Context(), []svc.Event{{ID: uuid.New(), Tenant: "a"}}))
	is.Equal(must(b.CountEvents(t.Context(), 9)), 1)
	expect.Soon(t, "the tenants do not listen", b.Hears)
}

// newlyMigrated returns the URL of a new schema with all tables.
func newlyMigrated(t *testing.T) string {
	t.Helper()
	url := pgtest.Schema(t)
	is.New(t).NoErr(closed(postgres.Open(t.Context(), url, patiently(postgres.Options{NoNotify: true}))))
	return url
}

// madeSchema is a schema with all tables.
type madeSchema struct {
	url  string
	as   string // what it is like when it is empty
	drop func() error
}

// madeSchemas are schemas that no test uses. Each is for one test after the other: to make and to drop
// its tables takes fifty times as long as to empty them.
type madeSchemas struct {
	mu    sync.Mutex
	list  []madeSchema
	lists madeSchema   // the database of listURL
	made  atomic.Int64 // schemas in it
	conns sync.Pool    // of emptied
}

var unused madeSchemas

// migrated returns the URL of a schema with all tables and no rows. Its connections have a name of their own, as
// locksAwaited needs. Tables that autovacuum must not have seen, or of which another test must not know, need
// newlyMigrated.
func migrated(t *testing.T) string {
	t.Helper()
	schema, name := unused.take(t), rand.Text()
	t.Cleanup(func() {
		if t.Failed() { // it may have left a transaction
			admin := pgtest.Open(t, pgtest.Server(t))
			must(admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name))
		}
		// What has changed the tables is not for the next test.
		if as, err := emptied(schema.url); err == nil && as == schema.as {
			unused.put(schema)
		} else if err := errors.Join(err, schema.drop()); err != nil {
			t.Error(err)
		}
	})
	return pgtest.With(t, schema.url, "application_name", name)
}

func (s *madeSchemas) take(t *testing.T) (schema madeSchema) {
	t.Helper()
	s.mu.Lock()
	if last := len(s.list) - 1; last >= 0 {
		schema, s.list = s.list[last], s.list[:last]
	}
	s.mu.Unlock()
	if schema.url != "" {
		return schema
	}
	schema.url, schema.drop = pgtest.NewSchema(t)
	err := closed(postgres.Open(t.Context(), schema.url, patiently(postgres.Options{NoNotify: true})))
	if err == nil {
		schema.as, err = emptied(schema.url)
	}
	if err != nil {
		t.Fatal(errors.Join(err, schema.drop()))
	}
	return schema
}

func (s *madeSchemas) put(schema madeSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, schema)
}

// drop drops what outlives the tests, after all of them.
func (s *madeSchemas) drop() (err error) {
	for _, schema := range s.list {
		err = errors.Join(err, schema.drop())
	}
	if s.lists.drop != nil {
		err = errors.Join(err, s.lists.drop())
	}
	return err
}

// listURL returns the URL of a new, empty schema for a list of tenants, in a database that many tests
// share. Its role is no superuser.
func listURL(t *testing.T) string {
	t.Helper()
	lists := unused.database(t)
	name := fmt.Sprint("list", unused.made.Add(1))
	must(pgtest.Open(t, lists).Exec("CREATE SCHEMA " + name))
	return pgtest.With(t, lists, "search_path", name)
}

func (s *madeSchemas) database(t *testing.T) (url string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists.url == "" {
		s.lists.url, s.lists.drop = pgtest.NewDatabase(t)
	}
	return s.lists.url
}

// emptying clears a schema, in a fraction of the time of TRUNCATE. Attachments refer to policies and come
// first; the other references cascade. What a test has made itself goes. The locks wait for transactions that
// a test has left behind.
const emptying = `DO $$ DECLARE name TEXT; BEGIN
	DISCARD PLANS; -- see sqlstore.Dialect.Replan
	FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema()
		AND tablename NOT IN ('svc_migrations', 'svc_generation', 'svc_locks') ORDER BY tablename
	LOOP
		IF name LIKE 'svc\_%' THEN
			EXECUTE 'LOCK TABLE ' || name || ' IN EXCLUSIVE MODE; DELETE FROM ' || name;
		ELSE
			EXECUTE 'DROP TABLE ' || name;
		END IF;
	END LOOP;
	UPDATE svc_generation SET value = 0;
	PERFORM setval(oid::regclass, 1, false) FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S';
END $$`

// likeness tells whether anything of a schema but its rows was changed, made or dropped. A change gives a
// row of the catalogue another xmin; autovacuum does not.
const likeness = `SELECT md5(string_agg(of, ' ' ORDER BY of)) FROM (
	SELECT concat_ws(' ', oid, xmin) AS of FROM pg_class WHERE relnamespace = current_schema()::regnamespace
	UNION ALL SELECT concat_ws(' ', attrelid, attnum, a.xmin) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
		WHERE relnamespace = current_schema()::regnamespace
	UNION ALL SELECT oid::TEXT FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
	UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_namespace WHERE nspname = current_schema()
	UNION ALL SELECT version::TEXT FROM svc_migrations
	UNION ALL SELECT name FROM svc_locks
	UNION ALL SELECT concat_ws(' ', id, value) FROM svc_generation) AS everything`

// emptied clears a schema, and returns its likeness. Its connection has no schema of its own, and serves the
// next test as well.
func emptied(address string) (as string, err error) {
	ctx := context.Background() // that of the test has ended
	in, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	query := in.Query()
	schema := query.Get("search_path")
	query.Del("search_path")
	in.RawQuery = query.Encode()
	conn, _ := unused.conns.Get().(*pgconn.PgConn)
	if conn == nil {
		if conn, err = pgconn.Connect(ctx, in.String()); err != nil {
			return "", err
		}
	}
	results, err := conn.Exec(ctx, "SET search_path = "+schema+"; SET synchronous_commit = off; "+emptying+"; "+likeness).ReadAll()
	if err != nil {
		return "", errors.Join(err, conn.Close(ctx))
	}
	unused.conns.Put(conn)
	return string(results[3].Rows[0][0]), nil
}

// empty clears a schema. The stores notice that the database has gone back.
func empty(t *testing.T, db *sql.DB, stores ...svc.Store) {
	t.Helper()
	_, err := db.Exec(emptying)
	for _, store := range stores {
		err = errors.Join(err, failure(store.Changes(t.Context(), 0)))
	}
	is.New(t).NoErr(err)
}
