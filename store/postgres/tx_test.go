package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
)

func TestHostRollsBack(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		before := sqltest.Generation(t, h.store)
		tx, key := h.signUp("alice")
		is.NoErr(tx.rollback())
		is.True(!h.accepted(key))
		is.Equal(h.accounts(), 0)
		is.Equal(sqltest.Generation(t, h.store), before)
		events, err := h.store.ClaimEvents(t.Context(), time.Now(), time.Now(), 10)
		is.NoErr(err)
		is.Equal(len(events), 0)
	})
}

func TestHostCommits(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		tx, key := h.signUp("alice")
		is.True(!h.accepted(key)) // not yet
		is.NoErr(tx.commit())
		is.True(h.accepted(key))
		is.Equal(h.accounts(), 1)
		select {
		case event := <-h.events:
			is.Equal(event.Target, key.Target())
		case <-time.After(time.Minute):
			t.Fatal("the event is not delivered")
		}
	})
}

// Other processes are told of a transaction when it commits, and only then.
func TestHostTellsOthers(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		conn, err := h.store.DB().Conn(t.Context())
		is.NoErr(err)
		defer conn.Close()
		var channel string
		is.NoErr(conn.QueryRowContext(t.Context(), "SELECT 'svc_' || encode(value, 'hex') FROM svc_kept_values WHERE name = 'channel'").Scan(&channel))
		_, err = conn.ExecContext(t.Context(), "LISTEN "+channel)
		is.NoErr(err)
		lost, tx := h.begin(), h.begin()
		is.NoErr(lost.CreateSource(t.Context(), source("lost")))
		is.NoErr(tx.CreateSource(t.Context(), source("kept")))
		is.NoErr(lost.rollback())
		_, err = conn.ExecContext(t.Context(), "SELECT pg_notify($1, 'between')", channel)
		is.NoErr(err)
		is.NoErr(tx.commit())
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
		_, err = conn.ExecContext(t.Context(), "UNLISTEN *")
		is.NoErr(err)
	})
}

// A call that fails or is refused leaves the host's transaction usable, without what it wrote.
func TestHostGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		tx, key := h.signUp("alice")
		is.True(errors.Is(tx.CreateAPIKey(t.Context(), svc.APIKey{ID: key.ID}), svc.ErrExists))
		is.True(errors.Is(tx.DeleteSource(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "none"}), svc.ErrNotFound))
		half := svc.Bundle{Users: []svc.User{{ID: "half"}}}
		broken := svc.Bundle{Users: half.Users, Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}}
		refused := errors.New("refused")
		change := func(ctx context.Context, change func() (svc.AccessWrite, error)) (err error) {
			defer func() {
				if failed := recover(); failed != nil {
					err = failed.(error)
				}
			}()
			return tx.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return change() })
		}
		is.True(errors.Is(change(t.Context(), func() (svc.AccessWrite, error) { return half.Write(), refused }), refused))
		is.True(errors.Is(change(t.Context(), func() (svc.AccessWrite, error) { panic(refused) }), refused))
		is.True(change(t.Context(), func() (svc.AccessWrite, error) { return broken.Write(), nil }) != nil) // the server refuses a statement
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		is.True(errors.Is(change(ended, func() (svc.AccessWrite, error) { return half.Write(), nil }), context.Canceled))
		is.True(tx.AwaitChange(t.Context(), 0) != nil)
		_, err := tx.ClaimEvents(t.Context(), time.Now(), time.Now(), 1)
		is.True(err != nil)

		is.NoErr(tx.exec("INSERT INTO accounts (id) VALUES ('bob')"))
		is.NoErr(addUsers(t.Context(), tx, "bob"))
		_, err = sqltest.ReadUser(t.Context(), tx, "bob")
		is.NoErr(err)
		is.NoErr(tx.commit())
		is.True(h.accepted(key))
		is.Equal(h.accounts(), 2)
		_, err = sqltest.ReadUser(t.Context(), h.store, "half")
		is.True(errors.Is(err, svc.ErrNotFound))
		is.True(addUsers(t.Context(), tx, "late") != nil) // it ended with the transaction
		_, err = sqltest.ReadUser(t.Context(), h.store, "late")
		is.True(errors.Is(err, svc.ErrNotFound))
	})
}

// A context that ends while a statement waits ends the transaction, and nothing of it stays.
func TestHostLosesACanceledTransaction(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		holder := h.begin()
		is.NoErr(holder.exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
		tx, key := h.signUp("alice")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			awaitLock(t, h.store)
		}()
		is.True(errors.Is(addUsers(ctx, tx, "alice"), context.Canceled))
		is.True(tx.CreateAPIKey(t.Context(), svc.APIKey{ID: "more"}) != nil)
		_ = tx.rollback() // the connection is closed
		is.NoErr(holder.rollback())
		is.True(!h.accepted(key))
		is.Equal(h.accounts(), 0)
	})
}

// awaitLock returns when another connection of the test waits for a lock.
func awaitLock(t *testing.T, store *postgres.Store) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if locksAwaited(t, store) > 0 {
			return
		}
	}
	t.Error("no connection waits for a lock")
}

// locksAwaited returns how many connections of the test wait for a lock.
func locksAwaited(t *testing.T, store *postgres.Store) (waiting int) {
	err := store.DB().QueryRow(`SELECT count(*) FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND application_name = current_setting('application_name')`).Scan(&waiting)
	if err != nil {
		t.Error(err)
	}
	return waiting
}

// A pool is no transaction.
func TestPoolIsNoTransaction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := newPool(t, migrated(t))
	store := postgres.Tx(pool) // it has the methods of one
	is.True(addUsers(t.Context(), store, "alice") != nil)
	_, err := sqltest.ReadUser(t.Context(), store, "alice")
	is.True(errors.Is(err, svc.ErrNotFound))
}

// PostgreSQL ends one of two transactions that wait for each other. It may run again.
func TestDeadlockIsChanged(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		one, two := h.begin(), h.begin()
		is.NoErr(one.CreateSource(t.Context(), source("same")))
		is.NoErr(two.exec("LOCK TABLE svc_access_lock IN EXCLUSIVE MODE"))
		ended := make(chan error, 2)
		end := func(tx hostTx, err error) { ended <- errors.Join(err, tx.rollback()) }
		go func() { end(one, addUsers(context.Background(), one, "alice")) }()
		go func() { end(two, two.CreateSource(context.Background(), source("same"))) }()
		first, second := <-ended, <-ended
		if first == nil { // the other one went on before the loser was back
			first, second = second, first
		}
		is.True(errors.Is(first, svc.ErrChanged))
		is.NoErr(second)
	})
}

// A caller that leaves during the commit still learns its outcome: otherwise nobody would. This
// commit can still be canceled.
func TestCallerLeavesDuringTheCommit(t *testing.T) {
	t.Parallel()
	bothWays(t, migrated, 10, leavesDuringTheCommit)
}

func leavesDuringTheCommit(t *testing.T, store *postgres.Store) {
	t.Parallel()
	is := is.New(t)
	h := newHost(t, store)
	_, err := h.store.DB().Exec(`CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$`)
	is.NoErr(err)
	_, err = h.store.DB().Exec(`CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON svc_api_keys DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION rest()`)
	is.NoErr(err)
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	_, err = h.service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})
	is.True(errors.Is(err, context.DeadlineExceeded))
	now, err := h.store.Access(t.Context(), svc.AccessQuery{KeysOf: alice, Most: 10})
	is.NoErr(err)
	is.Equal(now.Keys, 0)
	is.Equal(len(h.events), 0)
}
