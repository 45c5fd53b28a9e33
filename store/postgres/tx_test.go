package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// host is an application with a table of its own in the store's database.
type host struct {
	t       *testing.T
	store   *postgres.Store
	service *svc.Service
	events  chan svc.Event
}

func newHost(t *testing.T) host {
	t.Helper()
	h := host{t: t, store: open(t, pgtest.Schema(t), postgres.Options{}), events: make(chan svc.Event, 10)}
	if _, err := h.store.DB().Exec("CREATE TABLE accounts (id TEXT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	service, err := svc.New(svc.Config{
		Store:   h.store,
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}},
		OnEvent: func(_ context.Context, event svc.Event) { h.events <- event },
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.service = service
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// signUp makes an account with a key, in one transaction that the caller ends.
func (h host) signUp(id string) (*sql.Tx, svc.IssuedKey) {
	h.t.Helper()
	tx, err := h.store.DB().BeginTx(h.t.Context(), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO accounts (id) VALUES ($1)", id); err != nil {
		h.t.Fatal(err)
	}
	service := h.service.WithStore(sqlstore.Tx(tx, postgres.Dialect()))
	key, err := service.Keys.Issue(h.t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: id}, svc.NewAPIKey{})
	if err != nil {
		h.t.Fatal(err)
	}
	return tx, key
}

// accepted reports whether the service accepts the key.
func (h host) accepted(key svc.IssuedKey) bool {
	h.t.Helper()
	_, err := h.service.Authenticate(h.t.Context(), string(key.Key))
	if err != nil && svc.ErrorCode(err) != svc.CodeUnauthenticated {
		h.t.Fatal(err)
	}
	return err == nil
}

func (h host) accounts() (count int) {
	h.t.Helper()
	if err := h.store.DB().QueryRow("SELECT count(*) FROM accounts").Scan(&count); err != nil {
		h.t.Fatal(err)
	}
	return count
}

func TestHostRollsBack(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	before := generation(t, h.store)
	tx, key := h.signUp("alice")
	is.NoErr(tx.Rollback())
	is.True(!h.accepted(key))
	is.Equal(h.accounts(), 0)
	is.Equal(generation(t, h.store), before)
	events, err := h.store.ClaimEvents(t.Context(), time.Now(), time.Now(), 10)
	is.NoErr(err)
	is.Equal(len(events), 0)
}

func TestHostCommits(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	before := generation(t, h.store)
	tx, key := h.signUp("alice")
	is.True(!h.accepted(key)) // not yet
	is.NoErr(tx.Commit())
	is.True(h.accepted(key))
	is.Equal(h.accounts(), 1)
	changes, err := h.store.Changes(t.Context(), before)
	is.NoErr(err)
	is.Equal(len(changes.Targets), 1)
	select {
	case event := <-h.events:
		is.Equal(event.Target, changes.Targets[0])
	case <-time.After(10 * time.Second):
		t.Fatal("the event is not delivered")
	}
}

// A refused key leaves the host's transaction usable.
func TestHostGoesOnAfterARefusal(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	tx, key := h.signUp("alice")
	store := sqlstore.Tx(tx, postgres.Dialect())
	is.True(errors.Is(store.CreateAPIKey(t.Context(), svc.APIKey{ID: key.ID}), svc.ErrExists))
	is.True(errors.Is(store.DeleteSource(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "none"}), svc.ErrNotFound))
	is.NoErr(tx.Commit())
	is.True(h.accepted(key))
}

// PostgreSQL ends one of two transactions that wait for each other. It may run again.
func TestDeadlockIsChanged(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	one, err := h.store.DB().Begin()
	is.NoErr(err)
	two, err := h.store.DB().Begin()
	is.NoErr(err)
	inOne, inTwo := sqlstore.Tx(one, postgres.Dialect()), sqlstore.Tx(two, postgres.Dialect())
	is.NoErr(inOne.CreateAPIKey(t.Context(), svc.APIKey{ID: "one"})) // locks the generation
	_, err = two.Exec("UPDATE svc_locks SET name = name WHERE name = 'access'")
	is.NoErr(err)
	ended := make(chan error, 2)
	end := func(tx *sql.Tx, err error) { ended <- errors.Join(err, tx.Rollback()) }
	go func() { end(one, addUsers(context.Background(), inOne, "alice")) }()
	go func() { end(two, inTwo.CreateAPIKey(context.Background(), svc.APIKey{ID: "two"})) }()
	first, second := <-ended, <-ended
	if first == nil { // the other one went on before the loser was back
		first, second = second, first
	}
	is.True(errors.Is(first, svc.ErrChanged))
	is.NoErr(second)
}

// A caller that leaves during the commit still learns its outcome: otherwise nobody would. This
// commit can still be canceled.
func TestCallerLeavesDuringTheCommit(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
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
	live, err := h.store.LockAPIKeys(t.Context(), alice, 10)
	is.NoErr(err)
	is.Equal(live, 0)
	is.Equal(len(h.events), 0)
}

// A removal in a transaction of the host is undone with it.
func TestRemovalInAHostTransaction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store := open(t, migrated(t), postgres.Options{})
	source := svc.SourceKey{Scope: svc.ScopePersonal, Owner: "alice", Name: "s"}
	is.NoErr(store.CreateSource(t.Context(), svc.Source{SourceKey: source}))
	for _, commits := range []bool{false, true} {
		tx, err := store.DB().BeginTx(t.Context(), nil)
		is.NoErr(err)
		inside := sqlstore.Tx(tx, postgres.Dialect())
		var gone []svc.Target
		is.NoErr(inside.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
			remove, of := svc.AccessNames{Users: []string{"alice"}}, []svc.Target{{Kind: svc.TargetUser, ID: "alice"}}
			return svc.AccessWrite{Remove: remove, Targets: of, Gone: func(g []svc.Target) { gone = g }}, nil
		}))
		is.Equal(gone, []svc.Target{source.Target()})
		if commits {
			is.NoErr(tx.Commit())
		} else {
			is.NoErr(tx.Rollback())
		}
		_, err = store.Source(t.Context(), source)
		is.Equal(errors.Is(err, svc.ErrNotFound), commits)
	}
	changes, err := store.Changes(t.Context(), 1)
	is.NoErr(err)
	is.Equal(changes.Targets, []svc.Target{{Kind: svc.TargetUser, ID: "alice"}, source.Target()})
}
