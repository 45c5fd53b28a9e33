package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

func TestHost(t *testing.T) {
	t.Parallel()
	for name, rule := range sqltest.HostRules {
		t.Run(name, func(t *testing.T) {
			kinds := []string{"pool"}
			switch name {
			case "failures": // savepoints depend on the kind
				kinds = nil
			case "commit":
			default:
				longtest.Test(t, "each rule of a host's transaction")
			}
			eachKind(t, func(t *testing.T, h host) { rule(t, h.Host) }, kinds...)
		})
	}
}

// Other processes are told of a transaction when it commits, and only then.
func TestHostTellsOthers(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		conn := must(h.store.DB().Conn(t.Context()))
		defer conn.Close()
		channel := sqltest.Value[string](t, conn, "SELECT 'svc_' || encode(value, 'hex') FROM svc_kept_values WHERE name = 'channel'")
		must(conn.ExecContext(t.Context(), "LISTEN "+channel))
		lost, tx := h.Begin(), h.Begin()
		is.NoErr(lost.CreateSource(t.Context(), sqltest.NamedSource("lost")))
		is.NoErr(tx.CreateSource(t.Context(), sqltest.NamedSource("kept")))
		is.NoErr(lost.Rollback())
		must(conn.ExecContext(t.Context(), "SELECT pg_notify($1, 'between')", channel))
		is.NoErr(tx.Commit())
		table := sqltest.Value[string](t, conn, "SELECT tableoid FROM svc_generation WHERE id = 1")
		for _, want := range []string{"between", table} {
			is.NoErr(conn.Raw(func(driver any) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				told, err := driver.(interface{ Conn() *pgx.Conn }).Conn().WaitForNotification(ctx)
				if err == nil && told.Payload != want {
					err = fmt.Errorf("told of %s, want %s", told.Payload, want)
				}
				return err
			}))
		}
		must(conn.ExecContext(t.Context(), "UNLISTEN *"))
	}, "database/sql")
}

// A context that ends while a statement waits ends the call. A pool of the host loses the connection then, and a Store's
// own pool does not. Nothing stays of a transaction that is rolled back.
func TestHostCancelsACall(t *testing.T) {
	longtest.Parallel(t, "calls that a host cancels")
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		holder := h.Begin()
		is.NoErr(holder.Exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
		tx, key := h.SignUp("alice")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			awaitLock(t, h.DB)
		}()
		is.True(errors.Is(sqltest.AddUsers(ctx, tx, "alice"), context.Canceled))
		goesOn := tx.CreateAPIKey(t.Context(), svc.APIKey{ID: "more"}) == nil
		is.Equal(goesOn, strings.HasSuffix(t.Name(), "/database/sql"))
		_ = tx.Rollback() // the connection may be closed
		is.NoErr(holder.Rollback())
		is.True(!h.Accepted(key))
		is.Equal(h.Count("accounts"), 0)
	}, "database/sql", "pool")
}

// awaitLock returns when another connection of the test waits for a lock.
func awaitLock(t *testing.T, db *sql.DB) {
	expect.Soon(t, "no connection waits for a lock", func() bool { return locksAwaited(t, db) > 0 })
}

// locksAwaited returns how many connections of the test wait for a lock: those with its name. A server that
// cannot be asked at present knows of none.
func locksAwaited(t *testing.T, db *sql.DB) (waiting int) {
	var name string
	err := db.QueryRow(`SELECT current_setting('application_name'), count(*) FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND application_name = current_setting('application_name')`).Scan(&name, &waiting)
	if err != nil {
		t.Log(err)
	}
	expect.Holds(t, name != "svc", "connections of other tests have another name")
	return waiting
}

func TestPoolIsNoTransaction(t *testing.T) {
	is := parallel(t)
	pool := newPool(t, migrated(t))
	store := postgres.Tx(pool) // it has the methods of one
	is.True(sqltest.AddUsers(t.Context(), store, "alice") != nil)
	is.True(errors.Is(failure(sqltest.ReadUser(t.Context(), store, "alice")), svc.ErrNotFound))
}

// A caller that leaves during the commit still learns its outcome: otherwise nobody would. This
// commit can still be canceled.
func TestCallerLeavesDuringTheCommit(t *testing.T) {
	longtest.Parallel(t, "a caller who leaves during the commit")
	bothWays(t, migrated, pgtest.Connections, leavesDuringTheCommit)
}

func leavesDuringTheCommit(t *testing.T, store *postgres.Store) {
	is := parallel(t)
	h := newHost(t, store)
	must(h.store.DB().Exec(`CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$`))
	must(h.store.DB().Exec(`CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON svc_api_keys DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION rest()`))
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	_, err := h.Service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})
	is.True(errors.Is(err, context.DeadlineExceeded))
	is.Equal(must(h.store.Access(t.Context(), svc.AccessQuery{KeysOf: alice, Most: 10})).Keys, 0)
	is.Equal(len(h.Events), 0)
}

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
	tx := must(pool.Begin(t.Context()))
	return inPgx(tx, tx.Commit, tx.Rollback)
}

// beginNested begins a transaction of pgx that is a savepoint in another one.
func beginNested(t *testing.T, pool *pgxpool.Pool) sqltest.HostTx {
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

// TestStoreInPgxTransactions runs all rules of storetest on a Store over a pool of a host that uses
// pgx. The pool is the smallest one, with the simplest protocol. Each call runs in a transaction.
func TestStoreInPgxTransactions(t *testing.T) {
	longtest.Parallel(t, "the rules of storetest")
	url := pgtest.With(t, migrated(t), "synchronous_commit", "off")
	db, pool := pgtest.Open(t, url), newPool(t, url, atMost(1), func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	store := over(t, pool, postgres.Options{SynchronousCommit: "off", NoNotify: true})
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, db, store)
		return inTxs(store, pool)
	})
}

// inTxs returns a Store whose calls are transactions of the host, except those that make no sense in one.
func inTxs(store *postgres.Store, pool *pgxpool.Pool) svc.Store {
	return &intercept.Store{FullStore: store, Around: func(ctx context.Context, call intercept.Call) error {
		if !call.Writes {
			if read, is := call.Args[0].(svc.AccessRead); is && read.Since > 0 { // a transaction does not know what the Store has returned
				return call.Do()
			}
			return inTx(ctx, pool, store, pgx.RepeatableRead, call) // which sees one state
		}
		err := inTx(ctx, pool, store, pgx.ReadCommitted, call)
		for try := 1; try < 5 && errors.Is(err, svc.ErrChanged); try++ { // as a host does when others were in the way
			err = inTx(ctx, pool, store, pgx.ReadCommitted, call)
		}
		store.Wake() // as a notification does, at once
		return err
	}}
}

func inTx(
	ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, isolation pgx.TxIsoLevel, call intercept.Call,
) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: isolation}, func(tx pgx.Tx) error {
		return call.On(store.Tx(tx))
	})
}

// A transaction of the host that sees an old state changes nothing by it, and relies on nothing of it.
func TestHostsOldStateDecidesNothing(t *testing.T) {
	long(t, "what a host's transaction sees of an old state")
	user := func(id string) svc.Principal { return svc.Principal{Kind: svc.KindUser, ID: id} }
	deactivate := func(s *svc.Service, by svc.Principal, id string) error {
		inactive := true
		return failure(s.Users.Patch(context.Background(), by, id, svc.UserPatch{Inactive: &inactive}))
	}
	calls := map[string]func(s *svc.Service) error{
		"the last administrator": func(s *svc.Service) error { return deactivate(s, user("first"), "first") },
		"a right that is gone":   func(s *svc.Service) error { return deactivate(s, user("second"), "third") },
		"an issuer that is inactive": func(s *svc.Service) error {
			return failure(s.Keys.Issue(context.Background(), user("second"), holder, svc.NewAPIKey{}))
		},
	}
	for name, call := range calls {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(name+" "+level.String(), func(t *testing.T) {
				if level == sql.LevelSerializable || level != sql.LevelReadCommitted && name != "the last administrator" {
					longtest.Test(t, "each isolation with an old state")
				}
				is := parallel(t)
				h := newHost(t, open(t, migrated(t), postgres.Options{}))
				go func() {
					for range h.Events {
					}
				}()
				is.NoErr(h.Service.Access.Apply(t.Context(), svc.Host, svc.Bundle{
					Users: []svc.User{{ID: "first"}, {ID: "second"}, {ID: "third"}, {ID: holder.ID}},
					Attachments: []svc.Attachment{
						{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "first"}},
						{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "second"}},
					},
				}))
				tx := must(h.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level}))
				defer tx.Rollback()
				must(tx.Exec("SELECT 1 FROM accounts")) // the state of the transaction begins
				is.NoErr(deactivate(h.Service, user("first"), "second"))
				err := call(h.Service.WithTx(sqlstore.Tx(tx, postgres.Dialect())))
				is.True(err != nil)
				is.Equal(strings.Contains(fmt.Sprint(errors.Unwrap(err)), "begin it as READ COMMITTED"), level != sql.LevelReadCommitted)
			})
		}
	}
}
