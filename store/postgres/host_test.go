package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	begin   func() hostTx
}

// hostTx is a transaction of the host, and the Store inside it.
type hostTx struct {
	svc.FullStore
	exec             func(statement string, args ...any) error
	commit, rollback func() error
}

// eachKind runs a test with each kind of transaction that a host may have. Hosts with a pool of pgx
// have their Store over it.
func eachKind(t *testing.T, test func(t *testing.T, h host)) {
	for name, begin := range map[string]func(*testing.T, *pgxpool.Pool) hostTx{
		"database/sql": nil, "pool": beginInPool, "nested": beginNested, "connection": beginOnConn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.With(t, pgtest.Schema(t), "application_name", rand.Text())
			if begin == nil {
				test(t, newHost(t, open(t, url, postgres.Options{})))
				return
			}
			pool := newPool(t, url)
			h := newHost(t, over(t, pool, postgres.Options{}))
			h.begin = func() hostTx { return begin(t, pool) }
			test(t, h)
		})
	}
}

// inSQL begins a transaction of database/sql.
func (h host) inSQL() hostTx {
	h.t.Helper()
	tx, err := h.store.DB().BeginTx(h.t.Context(), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	exec := func(statement string, args ...any) error {
		_, err := tx.Exec(statement, args...)
		return err
	}
	return hostTx{sqlstore.Tx(tx, postgres.Dialect()), exec, tx.Commit, tx.Rollback}
}

func beginInPool(t *testing.T, pool *pgxpool.Pool) hostTx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return inPgx(tx, tx.Commit, tx.Rollback)
}

// beginNested begins a transaction of pgx that is a savepoint in another one.
func beginNested(t *testing.T, pool *pgxpool.Pool) hostTx {
	t.Helper()
	outer, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	inner, err := outer.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	both := func(end func(pgx.Tx, context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(end(inner, ctx), end(outer, ctx)) }
	}
	return inPgx(inner, both(pgx.Tx.Commit), both(pgx.Tx.Rollback))
}

// beginOnConn begins a transaction without an object for it.
func beginOnConn(t *testing.T, pool *pgxpool.Pool) hostTx {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := conn.Exec(ctx, statement)
			if statement != "BEGIN" {
				conn.Release()
			}
			return err
		}
	}
	if err := run("BEGIN")(t.Context()); err != nil {
		t.Fatal(err)
	}
	return inPgx(conn.Conn(), run("COMMIT"), run("ROLLBACK"))
}

func inPgx(tx postgres.PgxTx, commit, rollback func(context.Context) error) hostTx {
	exec := func(statement string, args ...any) error {
		_, err := tx.Exec(context.Background(), statement, args...)
		return err
	}
	end := func(end func(context.Context) error) func() error {
		return func() error { return end(context.Background()) }
	}
	return hostTx{postgres.Tx(tx), exec, end(commit), end(rollback)}
}

func newHost(t *testing.T, store *postgres.Store) host {
	t.Helper()
	h := host{t: t, store: store, events: make(chan svc.Event, 10)}
	h.begin = h.inSQL
	if _, err := h.store.DB().Exec("CREATE TABLE accounts (id TEXT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	service, err := svc.New(svc.Config{
		Store:  h.store,
		Keys:   svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}},
		Events: svc.EventConfig{OnEvent: func(_ context.Context, event svc.Event) { h.events <- event }},
		Logger: slog.New(slog.DiscardHandler),
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
func (h host) signUp(id string) (hostTx, svc.IssuedKey) {
	h.t.Helper()
	tx := h.begin()
	if err := tx.exec("INSERT INTO accounts (id) VALUES ($1)", id); err != nil {
		h.t.Fatal(err)
	}
	service := h.service.WithTx(tx)
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
