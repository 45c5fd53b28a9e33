// Package postgres opens a PostgreSQL database for package sqlstore, with the driver
// github.com/jackc/pgx/v5.
//
// It needs no extension, and only the right to create and use its own tables. The tables are in
// current_schema(): the first existing schema of the search path. [Open] and [New] ask for its
// name once, and all statements of the Store name it: a search path that changes later, or differs
// between connections, does not matter. Tables that only a later schema of the search path has are
// those of another deployment: the start fails, names both schemas and makes nothing.
package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/store/sqlstore"
)

// Store is a [sqlstore.Store]. It owns its pool of connections ([Open]), or shares that of the host
// ([New]).
type Store struct {
	*sqlstore.Store
	db       *sql.DB
	dialect  sqlstore.Dialect // with the schema
	listener *listener        // nil: the Store does not listen
	shared   bool             // the Store is a tenant's: db is that of all tenants
	exact    bool
	looks    background.SingleFlight[uint64]
}

// Options configure [Open] and [New]. The zero value suits a server that the host reaches directly.
type Options struct {
	// MaxOpen is the most connections, not counting one that listens. 0 means 10, and for
	// OpenTenants 9. For New: 0.
	MaxOpen int
	// MaxIdleTime is how long an idle connection stays open. 0 means 5 minutes. For New: 0.
	MaxIdleTime time.Duration
	// Timeout limits how long a statement may take, including its wait for locks, and how long a
	// transaction may be idle, whatever the caller's context says. The server ends what takes
	// longer. When the server does not answer, the client gives up the connection 5 s later. Both
	// errors are svc.ErrUnavailable. 0 means 30 s.
	//
	// Timeout matters for bundles of more than 100 rows and for the host's own statements. Every
	// other call of the Store waits at most 4 s for an answer of the server. A negative Timeout
	// means neither limit. Connecting takes at most 5 s, or the connect_timeout of the URL. For
	// New: 0 or negative.
	Timeout time.Duration
	// SynchronousCommit is PostgreSQL's synchronous_commit: "on", "remote_apply", "remote_write",
	// "local" or "off". "" keeps the server's setting, but uses "on" when that is weaker. A crash
	// of the server may undo the last acknowledged writes, such as the revocation of a key, with
	// "off". The loss of its machine may undo them with "local" or "remote_write". New sets nothing
	// and so refuses a pool with another setting; "" stands for "on" and "remote_apply".
	SynchronousCommit string
	// NoNotify leaves out NOTIFY and LISTEN, for servers that only speak PostgreSQL's protocol.
	// Other processes then notice changes at their next poll, within about a second. Nothing else
	// depends on it.
	NoNotify bool
	// Exact makes each request ask the server first whether anything was committed, at the price of
	// a round trip, which concurrent requests share. A change of another process then counts with
	// the next request, and not some milliseconds later.
	Exact bool
	// Pooler says that the URL leads to a pooler, such as PgBouncer in transaction or session mode.
	// Each transaction may then use another connection, so the Store keeps nothing on one: no
	// prepared statement, no LISTEN and no setting. Open therefore refuses a role whose
	// synchronous_commit is weaker than SynchronousCommit requires, or whose bytea_output or
	// extra_float_digits is not the server's default. Of the limits of Timeout, only the client's
	// holds. New keeps the pool's way to run queries (DefaultQueryExecMode): choose one there that
	// suits the pooler.
	Pooler bool
}

// Open connects to the database at url and creates or upgrades the tables.
//
// The url is a URL (postgres://user:password@host:5432/database?sslmode=verify-full) or a list of
// settings (host=… dbname=…), as libpq takes them. PG… variables, password files and service files
// apply. Connections have jit off unless the url sets it.
//
// A standby, which can only be read, must have the tables already; writes are svc.ErrUnavailable
// until it is promoted. Any number of processes may call Open concurrently; their migrations wait
// for each other until ctx ends. No error contains the password. When the server cannot be reached,
// the error is svc.ErrUnavailable.
func Open(ctx context.Context, url string, options Options) (store *Store, err error) {
	config, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL database: %w", err)
	}
	defer nameDatabase(&err, "open ", config)
	db, dialect, err := options.connect(ctx, config)
	if err != nil {
		return nil, err
	}
	return options.store(ctx, db, dialect, connectTo(config))
}

// connect makes the tables, and returns a pool for them, and their dialect.
func (o Options) connect(
	ctx context.Context, config *pgx.ConnConfig,
) (db *sql.DB, dialect sqlstore.Dialect, err error) {
	if err := o.check(); err != nil {
		return nil, dialect, err
	}
	// A migration may be slow, and waits for those of other processes: no limit of time.
	patient := o
	patient.Timeout, patient.MaxOpen = -1, 1
	if dialect, err = o.migrate(ctx, patient.pool(config)); err != nil {
		return nil, dialect, err
	}
	return o.pool(config), dialect, nil
}

// migrate creates the tables, and closes db. It returns the dialect for these tables.
func (o Options) migrate(ctx context.Context, db *sql.DB) (dialect sqlstore.Dialect, err error) {
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.PingContext(ctx); err != nil {
		return dialect, reason(err)
	}
	if err := o.checkSettings(ctx, db); err != nil {
		return dialect, err
	}
	if dialect, err = Dialect().Locate(ctx, db); err != nil {
		return dialect, reason(err)
	}
	if o.NoNotify {
		dialect.Notify = ""
	}
	if o.Timeout < 0 {
		dialect.Silence = 0
	}
	return dialect, sqlstore.New(db, db, dialect).Migrate(ctx)
}

// store returns a Store that uses db, or closes db. The Store listens on a connection that dial
// makes.
func (o Options) store(
	ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, dial connect,
) (*Store, error) {
	s, err := o.deaf(ctx, db, dialect)
	if err == nil && o.listens() {
		s.listener = newListener(dial, s.db, dialect, itself{s.Store}).start()
	}
	return s, err
}

func (o Options) listens() bool { return !o.NoNotify && !o.Pooler }

// deaf returns a Store that does not listen.
func (o Options) deaf(
	ctx context.Context, db *sql.DB, dialect sqlstore.Dialect,
) (*Store, error) {
	s := &Store{db: db, dialect: dialect, exact: o.Exact}
	if err := usable(ctx, s.db); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.Store = sqlstore.New(s.db, s.db, dialect)
	if o.NoNotify {
		return s, nil
	}
	if err := nameChannel(ctx, s.db, dialect); err != nil {
		return nil, errors.Join(reason(err), s.db.Close())
	}
	return s, nil
}

// nameChannel gives the channel of notifications a name, unless it has one. A database that can
// only be read keeps what it has, as a standby does: without a name the listener waits for one.
func nameChannel(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect) error {
	_, err := db.ExecContext(ctx, dialect.Qualify(keepChannel), []byte(rand.Text()))
	if hasState(err, readOnlyTransaction) {
		return nil
	}
	return err
}

// Pending returns a script with the migrations that the database at url lacks. A database without
// tables lacks all of them; an up-to-date one lacks none, and the script is "". Pending changes
// nothing. The script names no schema: run it with the same search path.
//
// [Open] runs the same migrations. The script is for hosts with their own migration tool, or with
// a role that may not create tables. When the server cannot be reached, the error is
// svc.ErrUnavailable. No error contains the password.
func Pending(ctx context.Context, url string, options Options) (script string, err error) {
	config, err := parse(url)
	if err != nil {
		return "", fmt.Errorf("PostgreSQL database: %w", err)
	}
	db := options.pool(config)
	defer func() { err = errors.Join(err, db.Close()) }()
	defer nameDatabase(&err, "", config)
	if err := db.PingContext(ctx); err != nil {
		return "", reason(err)
	}
	return sqlstore.Pending(ctx, db, Dialect())
}

// usable fails at start when every later call would fail: a pooler may refuse a setting, or
// transactions.
func usable(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return reason(err)
	}
	return reason(tx.Rollback())
}

// Close ends the listener and closes the connections. A pool that the host gave to [New] stays
// open. The Store of a tenant has neither: the host closes its [Tenants].
func (s *Store) Close() error {
	if s.shared {
		return nil
	}
	if s.listener != nil {
		s.listener.close()
	}
	return s.db.Close()
}

// Look implements [svc.FreshnessStore]. Without Options.Exact it answers 0.
func (s *Store) Look(ctx context.Context) (uint64, error) {
	if !s.exact {
		return 0, nil
	}
	ctx = context.WithoutCancel(ctx) // others share the answer
	return s.looks.Do(func() (uint64, error) {
		generation, err := s.Generation(ctx)
		return uint64(generation) + 1, err
	})
}

// AddAPIKeys is for the Service, which adds keys of concurrent callers together.
func (s *Store) AddAPIKeys(
	ctx context.Context, b batching.Keys[svc.APIKey, svc.Event],
) (added []bool, err error) {
	return s.AddKeys(ctx, b)
}

// DB returns the pool, for the host's own transactions, including those for [sqlstore.Tx]. After
// [New], its connections are those of the host's pool. Code that holds one of its connections and
// calls the Store, or a Service on it, needs a second connection. The connections that sql.Conn.Raw
// passes have the method Conn() *pgx.Conn.
func (s *Store) DB() *sql.DB { return s.db }

// Dialect returns the dialect for the tables of the Store, which names their schema: for
// [sqlstore.Tx] in a transaction of the host, whatever its search path is.
func (s *Store) Dialect() sqlstore.Dialect { return s.dialect }

// Tx is the function [Tx] for the tables of the Store: the search path of tx does not matter.
func (s *Store) Tx(tx PgxTx) svc.FullStore {
	return sqlstore.TxOf(transactionOf{tx}, s.dialect)
}

// silence is how long a call waits for a server that does not answer. With the work before and
// after, a request gets its answer within 5 s.
const silence = 4 * time.Second

// lock makes the migrations of one schema wait for each other. Those of two schemas do not. The key is
// the bytes of "svc1": an exclusive lock of it keeps out all migrations of the database.
const lock = `SELECT pg_advisory_xact_lock_shared(1937138481), pg_advisory_xact_lock(1937138481,
	hashtext(COALESCE(NULLIF($1::TEXT, ''), current_schema()::TEXT)))`

// The channel of NOTIFY for changes has a random name, which a row keeps. Every role of a database
// may notify and listen, but only one that may read the tables knows the name: no other role can
// hear or forge what changed. A copy of a schema in the same database has the same name, so each
// notification also tells the table.
const (
	keepChannel = `INSERT INTO svc_kept_values (name, value) VALUES ('channel', $1)
		ON CONFLICT DO NOTHING`
	selectChannel = `SELECT 'svc_' || encode(value, 'hex') FROM svc_kept_values
		WHERE name = 'channel'`
	notify = `SELECT pg_notify(COALESCE((` + selectChannel + `), 'svc_changes'),
		tableoid::TEXT) FROM svc_generation WHERE id = 1`
)

// identity is the start of the server, to the microsecond, the database and the table. A server has
// no other mark that every role may read and that a copy of its files does not have as well.
const identity = `SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
	(SELECT oid FROM pg_database WHERE datname = current_database()),
	(` + selectTable + `))`

// selectTable tells apart the tables of several schemas.
const selectTable = `SELECT tableoid::TEXT FROM svc_generation WHERE id = 1`

// find returns current_schema(), and the schema in which the search path finds a table. A schema of
// the path that the role may not use is not searched: it counts when no other one has the table, as
// the start would otherwise make new tables.
const find = `SELECT COALESCE(current_schema()::TEXT, ''), COALESCE(
	(SELECT nspname::TEXT FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE c.oid = to_regclass($1::TEXT)),
	(SELECT nspname::TEXT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
		WHERE relname = $1::TEXT AND NOT has_schema_privilege(n.oid, 'USAGE') AND EXISTS (
			SELECT FROM regexp_split_to_table(current_setting('search_path'), ' *, *') item
			WHERE item = '"' || nspname || '"' OR lower(item) = nspname
				OR item = '"$user"' AND nspname = current_user) LIMIT 1), '')`

// Dialect returns PostgreSQL's dialect, for hosts that bring their own pools to [sqlstore.New]. The
// errors of their driver must have a method SQLState. To notice the commits of other processes, a
// host listens to the channel svc_changes and calls Wake. Once a process has called [Open], the
// table svc_kept_values names another channel: "svc_" and, in hexadecimal digits, the value of the
// row "channel".
//
// Without a Schema, statements use the tables that the search path finds. [sqlstore.Dialect.Locate]
// sets it.
func Dialect() sqlstore.Dialect {
	return sqlstore.Dialect{
		Text: `TEXT COLLATE "C"`, Bytes: "BYTEA", NarrowIndexes: true,
		Serial:   "BIGINT GENERATED BY DEFAULT AS IDENTITY",
		Elements: "jsonb_array_elements",
		Lock:     lock,
		Notify:   notify,
		Channel:  "channel",
		Identity: identity,
		Find:     find,
		Rows:     256,
		Replan:   "DISCARD PLANS",
		Silence:  silence,
		Classify: classify,
	}
}
