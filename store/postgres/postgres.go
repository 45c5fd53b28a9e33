// Package postgres opens a PostgreSQL database for package sqlstore, with the driver github.com/jackc/pgx/v5. It needs no
// extension and no rights but those to make and use its own tables, in the first schema of the search path.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/extsvc/svc/store/sqlstore"
)

// Store is a [sqlstore.Store] that owns its pool of connections. Use [Open].
type Store struct {
	*sqlstore.Store
	db       *sql.DB
	listener *listener // nil: none
}

// Options are the choices of [Open]. The zero value is right for a server that is reached directly.
type Options struct {
	// MaxOpen is how many connections there are at most, one more that listens apart. They are kept when idle. 0: 10.
	MaxOpen int
	// MaxIdleTime is how long a connection that nobody uses is kept. 0: 5 minutes.
	MaxIdleTime time.Duration
	// Timeout is how long a statement may take, the wait for locks included, and a transaction may rest, whatever the
	// caller's context says. The server ends what takes longer; when it does not answer either, the connection is given up
	// 5 s later. Both are svc.ErrUnavailable. 0: 30 s. Negative: no limit. It is for bundles of more than 100 rows and for
	// the host's own statements: every other call of the Store waits 4 s at most for the server to say something.
	// Connecting takes 5 s at most, or the connect_timeout of the URL.
	Timeout time.Duration
	// SynchronousCommit is PostgreSQL's synchronous_commit: "on", "remote_apply", "remote_write", "local" or "off". "" is
	// the server's own setting, but "on" where that is weaker. With "off" a crash of the server, and with "local" or
	// "remote_write" the loss of its machine, may undo the last writes that were acknowledged, the revocation of a key
	// among them.
	SynchronousCommit string
	// NoNotify leaves out NOTIFY and LISTEN, for servers that only speak like PostgreSQL. Other processes then notice
	// changes when they next ask, within about a second; nothing else depends on it.
	NoNotify bool
	// Pooler says that the URL leads to a pooler, such as PgBouncer in transaction or session mode. Nothing is kept on a
	// connection then, which may be another one for each transaction: no prepared statement, no LISTEN, and no setting, so
	// Open refuses a role whose synchronous_commit is weaker than SynchronousCommit asks for, and only Timeout's second
	// limit holds.
	Pooler bool
}

// Open connects to the database at url, a URL (postgres://user:password@host:5432/database?sslmode=verify-full) or a list
// of settings (host=… dbname=…) as libpq takes them, PG… variables, password and service files included. It makes or
// upgrades the tables; any number of processes may do so at once, and wait for each other until ctx ends. No error shows
// the password. A server that cannot be reached is svc.ErrUnavailable.
func Open(ctx context.Context, url string, options Options) (*Store, error) {
	config, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL database: %w", err)
	}
	store, err := open(ctx, config, options)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL database %q on %s: %w", config.Database, server(config), err)
	}
	return store, nil
}

func open(ctx context.Context, config *pgx.ConnConfig, options Options) (*Store, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	if err := migrate(ctx, config, options); err != nil {
		return nil, err
	}
	dialect := Dialect()
	if options.NoNotify {
		dialect.Notify = ""
	}
	s := &Store{db: options.pool(config)}
	if err := usable(ctx, s.db); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.Store = sqlstore.New(s.db, s.db, dialect)
	if !options.NoNotify && !options.Pooler {
		s.listener = listen(config, s.Wake)
	}
	return s, nil
}

// migrate makes the tables, on a connection of its own: a migration may take its time, and waits for those of others.
func migrate(ctx context.Context, config *pgx.ConnConfig, options Options) (err error) {
	options.Timeout, options.MaxOpen = -1, 1
	db := options.pool(config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.PingContext(ctx); err != nil {
		return reason(err)
	}
	if err := options.checkCommits(ctx, db); err != nil {
		return err
	}
	return sqlstore.New(db, db, Dialect()).Migrate(ctx)
}

// Pending returns the migrations that the database at url lacks, as a script: all of them where it has no tables yet, "" where
// it lacks none. It changes nothing. [Open] runs them; a script is for hosts with a tool of their own, or whose role may not
// make tables. A server that cannot be reached is svc.ErrUnavailable. No error shows the password.
func Pending(ctx context.Context, url string, options Options) (script string, err error) {
	config, err := parse(url)
	if err != nil {
		return "", fmt.Errorf("PostgreSQL database: %w", err)
	}
	db := options.pool(config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err = db.PingContext(ctx); err != nil {
		err = reason(err)
	} else {
		script, err = sqlstore.Pending(ctx, db, Dialect())
	}
	if err != nil {
		err = fmt.Errorf("PostgreSQL database %q on %s: %w", config.Database, server(config), err)
	}
	return script, err
}

// usable finds out now what every call would: that a pooler refuses a setting, or transactions.
func usable(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return reason(err)
	}
	return tx.Rollback()
}

// Close ends the listener and closes the connections.
func (s *Store) Close() error {
	if s.listener != nil {
		s.listener.close()
	}
	return s.db.Close()
}

// DB is the pool, for the host's own transactions: those that sqlstore.Tx is given, too. Who holds one of its connections and
// calls the Store, or a Service on it, needs a second one.
func (s *Store) DB() *sql.DB { return s.db }

// silence is how long a call waits for a server that says nothing: with what is done before and after, a request is
// answered within 5 s.
const silence = 4 * time.Second

// lockKey is the key of the advisory lock that migrations wait for: "svc" and a "1", as bytes.
const lockKey = 0x73766331

// channel is what is notified of changes. It is the same in every schema: who is woken in vain asks, and sleeps on.
const channel = "svc_changes"

// Dialect is PostgreSQL's, for hosts that bring pools of their own to [sqlstore.New], with any driver whose errors have a
// method SQLState. A host that wants to be woken by others listens to the channel svc_changes and calls Wake.
func Dialect() sqlstore.Dialect {
	return sqlstore.Dialect{
		Text: `TEXT COLLATE "C"`, Bytes: "BYTEA", NarrowIndexes: true,
		Lock:     fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", lockKey),
		Notify:   "NOTIFY " + channel,
		Rows:     256,
		Silence:  silence,
		Classify: classify,
	}
}
