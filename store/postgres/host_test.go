package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlstore"
)

// host is an application with a table of its own in the store's database.
type host struct {
	sqltest.Host
	store *postgres.Store
}

func newHost(t *testing.T, store *postgres.Store) host {
	t.Helper()
	return host{Host: sqltest.NewHost(t, store, store.DB(), func(tx *sql.Tx) svc.FullStore {
		return sqlstore.Tx(tx, postgres.Dialect())
	}), store: store}
}

// eachKind runs a test with each kind of transaction that a host may have. Hosts with a pool of pgx
// have their Store over it. The short form has only the kinds that the test names, if it names some.
func eachKind(t *testing.T, test func(t *testing.T, h host), kinds ...string) {
	for name, begin := range map[string]func(*testing.T, *pgxpool.Pool) sqltest.HostTx{
		"database/sql": nil, "pool": beginInPool, "nested": beginNested, "connection": beginOnConn,
	} {
		t.Run(name, func(t *testing.T) {
			if len(kinds) > 0 && !slices.Contains(kinds, name) {
				longtest.Test(t, "every kind of transaction")
			}
			t.Parallel()
			url := migrated(t)
			if begin == nil {
				test(t, newHost(t, open(t, url, postgres.Options{})))
				return
			}
			pool := newPool(t, url)
			h := newHost(t, over(t, pool, postgres.Options{}))
			h.Begin = func() sqltest.HostTx { return begin(t, pool) }
			test(t, h)
		})
	}
}

func beginInPool(t *testing.T, pool *pgxpool.Pool) sqltest.HostTx {
	t.Helper()
	tx := must(pool.Begin(t.Context()))
	return inPgx(tx, tx.Commit, tx.Rollback)
}

// beginNested begins a transaction of pgx that is a savepoint in another one.
func beginNested(t *testing.T, pool *pgxpool.Pool) sqltest.HostTx {
	t.Helper()
	outer := must(pool.Begin(t.Context()))
	inner := must(outer.Begin(t.Context()))
	both := func(end func(pgx.Tx, context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(end(inner, ctx), end(outer, ctx)) }
	}
	return inPgx(inner, both(pgx.Tx.Commit), both(pgx.Tx.Rollback))
}

// beginOnConn begins a transaction without an object for it. The connection is the test's until its
// end: a transaction that is used after its commit must not meet others on it.
func beginOnConn(t *testing.T, pool *pgxpool.Pool) sqltest.HostTx {
	t.Helper()
	conn := must(pool.Acquire(t.Context()))
	t.Cleanup(conn.Release)
	run := func(statement string) func(context.Context) error {
		return func(ctx context.Context) error { return failure(conn.Exec(ctx, statement)) }
	}
	is.New(t).NoErr(run("BEGIN")(t.Context()))
	return inPgx(conn.Conn(), run("COMMIT"), run("ROLLBACK"))
}

func inPgx(tx postgres.PgxTx, commit, rollback func(context.Context) error) sqltest.HostTx {
	exec := func(statement string, args ...any) error {
		return failure(tx.Exec(context.Background(), statement, args...))
	}
	end := func(end func(context.Context) error) func() error {
		return func() error { return end(context.Background()) }
	}
	return sqltest.HostTx{FullStore: postgres.Tx(tx), Exec: exec, Commit: end(commit), Rollback: end(rollback)}
}
