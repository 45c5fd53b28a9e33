package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
	"github.com/extsvc/svc/store/storetest"
)

func TestMain(m *testing.M) {
	longtest.AtOnce(longtest.Times(6, pgtest.AtOnce)) // the long form has more connections in each test
	longtest.Short()
	m.Run()
	if lists.drop == nil {
		return
	}
	if err := lists.drop(); err != nil {
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

// long is parallel for a test that only CI runs.
func long(t *testing.T, shows string) *is.I {
	t.Helper()
	longtest.Parallel(t, shows)
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
				expect.Holds(t, !errors.Is(err, context.Canceled), name, ": the caller has not left: ", err)
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
	store := open(t, migrated(t), postgres.Options{})
	service := newHost(t, store).Service
	expect.Soon(t, "the store does not listen", func() bool { return service.Stats().Listening })
	deaf := open(t, migrated(t), postgres.Options{NoNotify: true})
	is.New(t).True(!newHost(t, deaf).Service.Stats().Listening)
}

// Tenants share an outbox, and each counts all of it.
func TestStatsOfTenants(t *testing.T) {
	is := long(t, "what tenants count")
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

// migrated returns the URL of a schema with all tables and no rows. Its connections have a name of their own, as
// locksAwaited needs. Tables that autovacuum must not have seen, or of which another test must not know, need
// newlyMigrated.
func migrated(t *testing.T) string {
	t.Helper()
	return pgtest.With(t, pgschema.Migrated(t), "application_name", rand.Text())
}

// lists is the database of listURL.
var lists struct {
	sync.Mutex
	url     string
	drop    func() error
	schemas int
}

// listURL returns the URL of a new, empty schema for a list of tenants, in a database that many tests
// share. Its role is no superuser.
func listURL(t *testing.T) string {
	t.Helper()
	lists.Lock()
	defer lists.Unlock()
	if lists.url == "" {
		lists.url, lists.drop = pgtest.NewDatabase(t)
	}
	lists.schemas++
	name := fmt.Sprint("list", lists.schemas)
	must(pgtest.Open(t, lists.url).Exec("CREATE SCHEMA " + name))
	return pgtest.With(t, lists.url, "search_path", name)
}

// empty clears a schema. The stores notice that the database has gone back.
func empty(t *testing.T, db *sql.DB, stores ...svc.Store) {
	t.Helper()
	_, err := db.Exec(pgschema.Empty)
	for _, store := range stores {
		err = errors.Join(err, failure(store.Changes(t.Context(), 0)))
	}
	is.New(t).NoErr(err)
}
