package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

func TestHost(t *testing.T) {
	t.Parallel()
	for name, rule := range sqltest.HostRules {
		t.Run(name, func(t *testing.T) {
			var kinds []string // all: savepoints depend on them
			switch name {
			case "failures":
			case "commit":
				kinds = []string{"pool", "database/sql"}
			default:
				kinds = []string{"pool"}
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
		var channel string
		is.NoErr(conn.QueryRowContext(t.Context(), "SELECT 'svc_' || encode(value, 'hex') FROM svc_kept_values WHERE name = 'channel'").Scan(&channel))
		must(conn.ExecContext(t.Context(), "LISTEN "+channel))
		lost, tx := h.Begin(), h.Begin()
		is.NoErr(lost.CreateSource(t.Context(), sqltest.NamedSource("lost")))
		is.NoErr(tx.CreateSource(t.Context(), sqltest.NamedSource("kept")))
		is.NoErr(lost.Rollback())
		must(conn.ExecContext(t.Context(), "SELECT pg_notify($1, 'between')", channel))
		is.NoErr(tx.Commit())
		var table string
		is.NoErr(conn.QueryRowContext(t.Context(), "SELECT tableoid FROM svc_generation WHERE id = 1").Scan(&table))
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
	})
}

// A context that ends while a statement waits ends the call. A pool of the host loses the connection then, and a Store's
// own pool does not. Nothing stays of a transaction that is rolled back.
func TestHostCancelsACall(t *testing.T) {
	t.Parallel()
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
	await(t, "no connection waits for a lock", func() bool { return locksAwaited(t, db) > 0 })
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
	if name == "svc" {
		t.Error("connections of other tests have the same name")
	}
	return waiting
}

// A pool is no transaction.
func TestPoolIsNoTransaction(t *testing.T) {
	is := parallel(t)
	pool := newPool(t, migrated(t))
	store := postgres.Tx(pool) // it has the methods of one
	is.True(sqltest.AddUsers(t.Context(), store, "alice") != nil)
	_, err := sqltest.ReadUser(t.Context(), store, "alice")
	is.True(errors.Is(err, svc.ErrNotFound))
}

// PostgreSQL ends one of two transactions that wait for each other. It may run again.
func TestDeadlockIsChanged(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		one, two := h.Begin(), h.Begin()
		is.NoErr(one.CreateSource(t.Context(), sqltest.NamedSource("same")))
		is.NoErr(two.Exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
		ended := make(chan error, 2)
		end := func(tx sqltest.HostTx, err error) { ended <- errors.Join(err, tx.Rollback()) }
		go func() { end(one, sqltest.AddUsers(context.Background(), one, "alice")) }()
		go func() { end(two, two.CreateSource(context.Background(), sqltest.NamedSource("same"))) }()
		first, second := <-ended, <-ended
		if first == nil { // the other one went on before the loser was back
			first, second = second, first
		}
		is.True(errors.Is(first, svc.ErrChanged))
		is.NoErr(second)
	}, "database/sql", "pool")
}

// A caller that leaves during the commit still learns its outcome: otherwise nobody would. This
// commit can still be canceled.
func TestCallerLeavesDuringTheCommit(t *testing.T) {
	t.Parallel()
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
	now := must(h.store.Access(t.Context(), svc.AccessQuery{KeysOf: alice, Most: 10}))
	is.Equal(now.Keys, 0)
	is.Equal(len(h.Events), 0)
}
