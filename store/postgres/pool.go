package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/extsvc/svc/store/sqlstore"
)

// New is [Open] over a pool of the host. It creates or upgrades the tables, in current_schema() of
// a new connection of the pool. The hooks of the pool run as for the host's own connections; a
// search_path that they or the host set later does not matter to the Store.
//
// The pool stays the host's: Close of the Store does not close it, and the Store changes no setting
// of its connections. Close the pool after the Store. So the options MaxOpen, MaxIdleTime and
// Timeout must be 0, and the pool's own settings count. A statement_timeout there bounds bundles of
// more than 100 rows, but not migrations. As with Open, every other call waits at most 4 s, also
// for a connection of the pool.
//
// A call holds at most one connection of the pool, and waits for no second one. So a pool of any
// size works. A host that calls the Store while it holds a connection needs one more for that call:
// when all callers hold one and none is left, the calls fail with svc.ErrUnavailable after those
// 4 s. New makes two more connections with the pool's configuration: one that migrates, until New
// returns, and one that listens, unless NoNotify or Pooler is set.
func New(ctx context.Context, pool *pgxpool.Pool, options Options) (store *Store, err error) {
	if pool == nil {
		return nil, errors.New("use a pool of PostgreSQL: the pool is nil")
	}
	config := pool.Config()
	defer nameDatabase(&err, "use a pool of ", config.ConnConfig)
	db, dialect, err := options.prepare(ctx, pool, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout) // the host may hold all connections
	defer cancel()
	return options.store(ctx, db, dialect, listenAs(config))
}

// prepare makes the tables, and returns the pool for database/sql and the dialect for the tables.
func (o Options) prepare(
	ctx context.Context, pool *pgxpool.Pool, config *pgxpool.Config,
) (db *sql.DB, dialect sqlstore.Dialect, err error) {
	if err := o.checkForPool(); err != nil {
		return nil, dialect, err
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if dialect, err = o.migrateAs(ctx, config); err != nil {
		return nil, dialect, err
	}
	return shared(pool), dialect, nil
}

// checkForPool refuses options that only the configuration of the pool can have.
func (o Options) checkForPool() error {
	for _, option := range []struct {
		name, instead string
		value         time.Duration
	}{
		{"MaxOpen", "MaxConns", time.Duration(o.MaxOpen)},
		{"MaxIdleTime", "MaxConnIdleTime", o.MaxIdleTime},
		{"Timeout", `ConnConfig.RuntimeParams["statement_timeout"]`, max(0, o.Timeout)},
	} {
		if option.value != 0 {
			return fmt.Errorf("the option %s is set, but the pool is yours: "+
				"leave it 0, and set %s of pgxpool.Config", option.name, option.instead)
		}
	}
	return o.check()
}

// shared returns the pool for database/sql, which keeps none of its connections and sets no
// limit: callers wait in the pool, each with its context.
func shared(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(connector{Connector: stdlib.GetPoolConnector(pool), hosts: true})
	db.SetMaxIdleConns(0)
	return db
}

// migrateAs creates the tables on a connection like those of the pool, which may all be in use.
func (o Options) migrateAs(
	ctx context.Context, config *pgxpool.Config,
) (dialect sqlstore.Dialect, err error) {
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return dialect, err
	}
	defer pool.Close()
	return o.migrate(ctx, shared(pool))
}

// listenAs makes connections with the credentials of the pool. They see no tables, so the hooks for
// made connections do not matter.
func listenAs(pool *pgxpool.Config) connect {
	return func(ctx context.Context) (*pgx.Conn, error) {
		config := pool.ConnConfig.Copy()
		if pool.BeforeConnect != nil {
			if err := pool.BeforeConnect(ctx, config); err != nil {
				return nil, err
			}
		}
		config.OnNotification = nil // the listener takes them from the connection
		return pgx.ConnectConfig(ctx, config)
	}
}
