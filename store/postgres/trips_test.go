package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// counted is a connection that counts what it sends. The driver sends once a round trip.
type counted struct {
	net.Conn
	sent *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(p)
}

// TestTrips counts the round trips of mutations, of which none but the last holds the generation.
func TestTrips(t *testing.T) {
	t.Parallel()
	config, err := parse(pgtest.Schema(t))
	is.New(t).NoErr(err)
	var sent atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return counted{conn, &sent}, err
	}
	if _, err := (Options{}).migrate(t.Context(), Options{}.pool(config)); err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*sql.DB{
		"direct": Options{MaxOpen: 1}.pool(config), "pooler": Options{MaxOpen: 1, Pooler: true}.pool(config),
		"host's pool":                  hosts(t, config, pgx.QueryExecModeCacheStatement),
		"host's pool, simple protocol": hosts(t, config, pgx.QueryExecModeSimpleProtocol),
	} {
		defer db.Close()
		dialect := Dialect()
		dialect.Notify = "" // the Store sends some notifications later
		store := sqlstore.New(db, db, dialect)
		for _, m := range mutations {
			var trips int64
			for i := 0; i < 2 || trips != m.trips && i < 20; i++ { // the first prepares statements, and after a pause of a second the driver pings
				before := sent.Load()
				if err := m.do(t.Context(), store, fmt.Sprint(name, m.name, i)); err != nil {
					t.Fatalf("%s: %v", m.name, err)
				}
				trips = sent.Load() - before
			}
			if trips != m.trips {
				t.Errorf("%s, %s: %d trips, want %d", name, m.name, trips, m.trips)
			}
		}
	}
}

// hosts returns a pool of the host with one connection.
func hosts(t *testing.T, conn *pgx.ConnConfig, mode pgx.QueryExecMode) *sql.DB {
	t.Helper()
	config, err := pgxpool.ParseConfig("")
	is.New(t).NoErr(err)
	config.ConnConfig, config.MaxConns = conn.Copy(), 1
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	is.New(t).NoErr(err)
	t.Cleanup(pool.Close)
	return shared(pool)
}

var alice = svc.Identity{Kind: svc.KindUser, ID: "alice"}

var mutations = []struct {
	name  string
	trips int64
	do    func(ctx context.Context, store *sqlstore.Store, id string) error
}{
	{"create a key", 1, createKey},
	{"issue", 2, func(ctx context.Context, store *sqlstore.Store, id string) error {
		return store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
			locks := svc.Locks{RelyOnAccess: true, Holder: alice, RelyOnKey: "k"}
			if err := tx.Lock(ctx, locks); err != nil {
				return err
			}
			if _, err := tx.Access(ctx, svc.AccessQuery{KeyID: "k", KeysOf: alice, Most: 10}); err != nil {
				return err
			}
			return tx.CreateAPIKey(ctx, svc.APIKey{ID: id, Holder: alice})
		})
	}},
	{"issue together", 1, func(ctx context.Context, store *sqlstore.Store, id string) error {
		keys := []batching.Key[svc.APIKey, svc.Event]{
			{Key: svc.APIKey{ID: id, Holder: alice}, Since: 1, Caller: "k"},
			{Key: svc.APIKey{ID: id + "2", Holder: svc.Identity{Kind: svc.KindUser, ID: id}}},
		}
		_, err := store.AddKeys(ctx, batching.Keys[svc.APIKey, svc.Event]{
			Take: func() []batching.Key[svc.APIKey, svc.Event] { return keys }, Most: 10, ValidAt: time.Now(), Audit: true,
		})
		return err
	}},
	{"revoke", 3, func(ctx context.Context, store *sqlstore.Store, id string) error {
		if err := createKey(ctx, store, id); err != nil { // one trip
			return err
		}
		return store.ChangeAPIKey(ctx, alice, id, func(key *svc.APIKey) (bool, error) { return true, nil })
	}},
	{"read named rows", 1, func(ctx context.Context, store *sqlstore.Store, id string) error {
		names := svc.AccessNames{Users: []string{id}, Policies: []string{"p"}, GroupsOf: []string{id}}
		_, err := store.ReadAccess(ctx, svc.AccessRead{Named: &names}, func(svc.Bundle) error { return nil })
		return err
	}},
	{"write users, then read what changed", 6, func(ctx context.Context, store *sqlstore.Store, id string) error {
		at, err := store.Generation(ctx)
		if err == nil {
			err = store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				return judgedWrite(ctx, tx, id)
			})
		}
		if err == nil { // two trips
			_, err = store.ReadAccess(ctx, svc.AccessRead{Since: at}, func(svc.Bundle) error { return nil })
		}
		return err
	}},
	{"nothing", 0, func(ctx context.Context, store *sqlstore.Store, _ string) error {
		return store.Atomically(ctx, func(context.Context, svc.Store) error { return nil })
	}},
}

// judgedWrite writes a user as the Service does for a caller with a key.
func judgedWrite(ctx context.Context, tx svc.Store, id string) error {
	err := errors.Join(tx.Lock(ctx, svc.Locks{ChangeAccess: true}), tx.Lock(ctx, svc.Locks{RelyOnKey: "k"}))
	if err != nil {
		return err
	}
	if _, err := tx.Access(ctx, svc.AccessQuery{KeyID: "k", Bare: true}); err != nil {
		return err
	}
	return tx.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		return svc.Bundle{Users: []svc.User{{ID: id}}, Groups: []svc.Group{{ID: id}}}.Write(), nil
	})
}

func createKey(ctx context.Context, store *sqlstore.Store, id string) error {
	return store.CreateAPIKey(ctx, svc.APIKey{ID: id, Holder: alice})
}
