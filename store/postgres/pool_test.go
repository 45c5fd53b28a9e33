package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// newPool makes a pool of a host, which is closed when the test ends. A test that has failed may have left a connection
// in use, for which the pool would wait.
func newPool(t *testing.T, url string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := must(pgxpool.ParseConfig(url))
	config.MaxConns = pgtest.Connections
	for _, change := range changes {
		change(config)
	}
	pool := must(pgxpool.NewWithConfig(t.Context(), config))
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		patience := time.Minute
		if t.Failed() {
			patience = time.Second
		}
		select {
		case <-closed:
		case <-time.After(patience):
			t.Error("a connection of the pool is in use")
		}
	})
	return pool
}

func atMost(connections int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = connections }
}

// over makes a Store over a pool. It is closed when the test ends. Its calls wait as open says.
func over(t *testing.T, pool *pgxpool.Pool, options postgres.Options) *postgres.Store {
	t.Helper()
	if options = patiently(options); options.Timeout == limited {
		options.Timeout = 0 // the pool has its own
	}
	store := must(postgres.New(t.Context(), pool, options))
	t.Cleanup(func() { must(0, store.Close()) })
	return store
}

// bothWays runs a test with a Store that has connections of its own, and with one over a pool of the host.
func bothWays(
	t *testing.T, url func(*testing.T) string, connections int, test func(*testing.T, *postgres.Store),
) {
	bothWaysWithin(t, 0, url, connections, test)
}

func bothWaysWithin(
	t *testing.T, timeout time.Duration, url func(*testing.T) string, connections int, test func(*testing.T, *postgres.Store),
) {
	t.Run("own connections", func(t *testing.T) {
		test(t, open(t, url(t), postgres.Options{MaxOpen: connections, Timeout: timeout}))
	})
	t.Run("pool", func(t *testing.T) {
		test(t, over(t, newPool(t, url(t), atMost(int32(connections))), postgres.Options{Timeout: timeout}))
	})
}

func TestRefusedPools(t *testing.T) {
	is := long(t, "pools that are refused")
	url := migrated(t)
	pool, weak := newPool(t, url), newPool(t, pgtest.With(t, url, "synchronous_commit", "off"))
	for _, c := range []struct {
		pool    *pgxpool.Pool
		options postgres.Options
		want    string
	}{
		{nil, postgres.Options{}, "the pool is nil"},
		{pool, postgres.Options{MaxOpen: 3}, "leave it 0, and set MaxConns of pgxpool.Config"},
		{pool, postgres.Options{MaxIdleTime: time.Hour}, "MaxConnIdleTime"},
		{pool, postgres.Options{MaxIdleTime: -1}, "MaxConnIdleTime"},
		{pool, postgres.Options{Timeout: 1}, "statement_timeout"},
		{pool, postgres.Options{SynchronousCommit: "sometimes"}, "SynchronousCommit"},
		{pool, postgres.Options{SynchronousCommit: "off"}, `synchronous_commit is "on", want off`},
		{weak, postgres.Options{}, `synchronous_commit is "off", want on`},
		{newPool(t, "postgres://u:Hunter2Secret@127.0.0.1:1/db?sslmode=disable"), postgres.Options{}, `database "db" on 127.0.0.1:1: unavailable: `},
	} {
		_, err := postgres.New(t.Context(), c.pool, c.options)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(fmt.Sprintf("%+v", err), "Hunter2Secret"),
			"got ", err, ", want ", c.want)
	}
	is.NoErr(pool.Ping(t.Context())) // a refused pool stays open
	over(t, weak, postgres.Options{SynchronousCommit: "off"})
}

// The pool is the host's before, during and after the life of the Store.
func TestPoolStaysTheHosts(t *testing.T) {
	is := long(t, "a pool of the host after Close")
	pool := newPool(t, migrated(t))
	var before, after string
	const settings = `SELECT string_agg(name || ' = ' || setting, ', ' ORDER BY name) FROM pg_settings WHERE source = 'session'`
	is.NoErr(pool.QueryRow(t.Context(), "SELECT COALESCE(("+settings+"), '')").Scan(&before))
	store := must(postgres.New(t.Context(), pool, postgres.Options{}))
	is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	is.NoErr(store.Close())
	is.NoErr(pool.QueryRow(t.Context(), "SELECT COALESCE(("+settings+"), '')").Scan(&after))
	is.Equal(after, before)
	// Close interrupts the listener. The pool destroys its connection in the background.
	expect.Soon(t, "the pool keeps a connection", func() bool { return pool.Stat().AcquiredConns() == 0 })
	is.True(failure(sqltest.ReadUser(t.Context(), store, "alice")) != nil)
	must(sqltest.ReadUser(t.Context(), over(t, pool, postgres.Options{}), "alice")) // again
}

func TestClosedPool(t *testing.T) {
	is := long(t, "a closed pool")
	pool := newPool(t, migrated(t))
	store := over(t, pool, postgres.Options{})
	pool.Close()
	is.True(errors.Is(sqltest.AddUsers(t.Context(), store, "alice"), svc.ErrUnavailable))
}

// inSchema makes a schema the first of the search path, as a host does for a tenant.
func inSchema(name string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			return failure(conn.Exec(ctx, "SET search_path = "+name))
		}
	}
}

// The tables are in the schema that the pool's hook chooses. Stores there hear each other, whatever other hooks do.
func TestPoolWithHooks(t *testing.T) {
	is := long(t, "pools whose hooks choose the schema")
	server, schemas := pgtest.Server(t), [2]string{}
	admin := pgtest.Open(t, server)
	for i := range schemas {
		schemas[i] = fmt.Sprintf("svc_test_tenant_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), i)
		must(admin.Exec("CREATE SCHEMA " + schemas[i]))
		t.Cleanup(func() { must(admin.Exec("DROP SCHEMA " + schemas[i] + " CASCADE")) })
	}
	hooked := func(config *pgxpool.Config) {
		database := config.ConnConfig.Database
		config.ConnConfig.Database = "svc_no_such_database"
		config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			conn.Database = database // as a host sets a password that changes
			return nil
		}
		config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
		config.AfterRelease = func(*pgx.Conn) bool { return true }
	}
	one := over(t, newPool(t, server, inSchema(schemas[0]), hooked), postgres.Options{})
	again := over(t, newPool(t, server, inSchema(schemas[0]), hooked), postgres.Options{})
	other := over(t, newPool(t, server, inSchema(schemas[1]), hooked), postgres.Options{})
	is.NoErr(sqltest.AddUsers(t.Context(), one, "alice"))
	must(sqltest.ReadUser(t.Context(), again, "alice"))
	is.True(errors.Is(failure(sqltest.ReadUser(t.Context(), other, "alice")), svc.ErrNotFound))
	is.Equal(sqltest.Value[int](t, admin, "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = 'svc_users'", schemas[1]), 1)
	wakesAnother(t, one, again)
}

// A host may hold all connections. Calls then fail in time, and work again when it lets one go. New fails as well.
func TestExhaustedPool(t *testing.T) {
	is := long(t, "an exhausted pool")
	pool := newPool(t, migrated(t), atMost(2))
	store := over(t, pool, postgres.Options{Timeout: limited})
	answered(t, store)
	held := make([]*pgxpool.Conn, 2)
	for i := range held {
		held[i] = must(pool.Acquire(t.Context()))
	}
	began, made := time.Now(), make(chan error)
	go func() {
		_, err := postgres.New(context.Background(), pool, postgres.Options{})
		made <- err
	}()
	t.Logf("unanswered after %s", unanswered(t, store, 2, false).Round(time.Millisecond))
	is.True(errors.Is(<-made, svc.ErrUnavailable))
	is.True(time.Since(began) < time.Minute)
	held[0].Release()
	answered(t, store)
	held[1].Release()
}

// Hosts that call the Store while they hold a connection each do not wait for each other for ever.
func TestHostsHoldAllConnections(t *testing.T) {
	is := long(t, "hosts that hold all connections")
	const hosts = 3
	pool := newPool(t, migrated(t), atMost(hosts))
	store := over(t, pool, postgres.Options{Timeout: limited})
	began, ended := make(chan struct{}, hosts), make(chan error, hosts)
	start := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(start) })
	defer letGo()
	for range hosts {
		go func() {
			ended <- pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
				began <- struct{}{}
				<-start
				return sqltest.AddUsers(context.Background(), store, "alice") // it should be postgres.Tx(tx)
			})
		}()
	}
	for range hosts {
		select {
		case <-began:
		case err := <-ended:
			t.Fatalf("a host has no connection: %v", err)
		}
	}
	letGo()
	failed := 0
	for range hosts {
		select {
		case err := <-ended:
			if err != nil {
				is.True(errors.Is(err, svc.ErrUnavailable))
				failed++
			}
		case <-time.After(time.Minute):
			t.Fatal("a host waits for ever")
		}
	}
	is.True(failed > 0)
	answered(t, store)
}

// The pool's limit of a statement is none of a migration, which waits for that of another process.
func TestMigrationOutlivesTheTimeoutOfThePool(t *testing.T) {
	longtest.Parallel(t, "a migration that takes longer than statements may")
	url := pgtest.Schema(t)
	other := must(pgtest.Open(t, url).Begin())
	must(other.Exec(postgres.Dialect().Lock, ""))
	pool := newPool(t, pgtest.With(t, url, "statement_timeout", "3s"))
	time.AfterFunc(4*time.Second, func() { _ = other.Rollback() })
	over(t, pool, postgres.Options{})
}

// counted returns the URL of a slow way to a server, and how many connections have taken it.
func counted(t *testing.T, url string) (way string, taken *atomic.Int64) {
	t.Helper()
	server := must(pgconn.ParseConfig(url))
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	taken = &atomic.Int64{}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			time.Sleep(10 * time.Millisecond)
			network, address := pgconn.NetworkAddress(server.Host, server.Port)
			out, err := net.Dial(network, address)
			if err != nil {
				_ = in.Close()
				continue
			}
			both := func(to, from net.Conn) { _, _ = io.Copy(to, from); _, _ = to.Close(), from.Close() }
			go both(in, out)
			go both(out, in)
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return pgtest.With(t, pgtest.With(t, url, "host", "127.0.0.1"), "port", port), taken
}

// Callers who leave take no connections from others: neither while a connection is made, nor while a statement runs,
// by itself or in a transaction.
func TestCallersWhoLeave(t *testing.T) {
	is := long(t, "callers who leave the pool's queue")
	url, taken := counted(t, migrated(t))
	store := open(t, url, postgres.Options{NoNotify: true, MaxOpen: pgtest.Connections})
	const calls = 40
	leave := func(connected bool, call func(ctx context.Context) error) {
		t.Helper()
		before := taken.Load()
		for range calls {
			if connected {
				is.NoErr(store.DB().PingContext(t.Context()))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_ = call(ctx) // a connection may come in time
			cancel()
		}
		is.True(taken.Load()-before < calls/2) // a slow machine asks the server to cancel some
	}
	sleep := func(ctx context.Context, in interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}) error {
		return failure(in.ExecContext(ctx, "SELECT pg_sleep(0.02)"))
	}
	store.DB().SetMaxIdleConns(0)
	leave(false, store.DB().PingContext) // a connection takes longer
	store.DB().SetMaxIdleConns(pgtest.Connections)
	leave(true, func(ctx context.Context) error { return sleep(ctx, store.DB()) })
	leave(true, func(ctx context.Context) error {
		tx, err := store.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		return sleep(ctx, tx)
	})
	leave(true, func(ctx context.Context) error {
		return store.ChangeAccess(ctx, svc.AccessNames{Users: []string{"nobody"}}, func(svc.Bundle) (write svc.AccessWrite, err error) {
			<-ctx.Done()
			return write, nil
		})
	})
	is.NoErr(store.DB().PingContext(t.Context()))
}

// A pooler is not asked to cancel a statement that takes a moment: some versions of PgBouncer exit then.
func TestPoolersAreNotAskedToCancel(t *testing.T) {
	is := long(t, "canceled calls behind a pooler")
	url, taken := counted(t, migrated(t))
	db := open(t, url, postgres.Options{Pooler: true, MaxOpen: 1}).DB()
	is.NoErr(db.PingContext(t.Context()))
	const calls = 8
	before := taken.Load()
	for range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, _ = db.ExecContext(ctx, "SELECT pg_sleep(0.2)")
		cancel()
	}
	is.True(taken.Load()-before < calls/2) // a request is a connection, and a slow machine makes some
}
