// Package sqlstore implements [svc.Store] in a SQL database, through database/sql.
//
// It brings no driver: one set of statements serves every [Dialect]. Packages such as store/sqlite
// bring a driver, its dialect and well-configured pools.
package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
)

// Dialect describes what differs between databases.
type Dialect struct {
	// Text is the type of columns of text, which the database must compare and order byte by byte.
	// Bytes is the type of columns of bytes.
	Text, Bytes string
	// Serial is the type of a column of whole numbers that is the primary key, and that the
	// database sets to a greater number in each new row. No two rows ever have the same.
	Serial string
	// NarrowIndexes says that the database limits the length of an index row, as PostgreSQL does to
	// 2,704 bytes. The list of installed templates is then read from its table; without a limit an
	// index holds the whole list.
	NarrowIndexes bool
	// Elements is the function that returns the elements of a JSON array as rows with a column
	// value: jsonb_array_elements in PostgreSQL. The function with "_text" behind its name returns
	// them as texts. Empty means json_each, for both, as in SQLite.
	Elements string
	// Schema is the schema of the tables, which Migrate makes if it is missing. Each statement
	// names it, so the search path of a connection does not matter. Statements are then not
	// prepared through database/sql, which would keep those of each schema. Empty, as SQLite needs
	// it: the tables are where the connection looks for them. See [Dialect.Locate].
	Schema string
	// Find is a query for two texts: the schema in which a connection makes a table, and the one in
	// which it finds the table of the name $1. Either is empty when there is none. Without a
	// Schema, [Store.Migrate], [Pending] and [NewRegistry] refuse tables that only another schema
	// has. Empty: they use what the connection finds.
	Find string
	// Tenant says that Schema belongs to a tenant. Nil: it does not.
	Tenant *TenantDialect
	// Lock is a statement that makes a migration wait for the migrations of other processes in the
	// same schema. Its parameter is the Schema. The lock must last until the transaction ends.
	// Empty: none is needed, because transactions of the pool that write wait for each other.
	Lock string
	// Notify is a statement that tells other processes that something has changed. The Store runs
	// it after the commit of a mutation, at most each 10 ms, and in a transaction of the host as
	// part of each mutation. A process that hears it calls [Store.Hear], or [Store.Wake]. Empty:
	// other processes notice changes within a second.
	Notify string
	// Channel is the name of the kept value that Notify uses. It belongs to the database and not to
	// its data, so [Copy] leaves it out. Empty: there is none.
	Channel string
	// Identity is a query for one text, which only the database with these tables returns, under
	// every address. [Copy] needs it to refuse a copy of a database to itself. Empty, or an empty
	// text: it is not known.
	Identity string
	// OneWriter says that transactions that write wait for each other before they begin, as
	// SQLite's do. Concurrent mutations then share one transaction, and so one sync of the disk. A
	// statement that has begun is not interrupted, because the database would undo more than itself.
	// Without it, the database has LOCK TABLE and FOR SHARE, as PostgreSQL has.
	OneWriter bool
	// Rows is the most rows that one statement writes: 1, 4, 16, 64 or 256. Some drivers look up
	// parameters by name, as SQLite's do; their time grows with the square of the parameters. 0
	// means 64.
	Rows int
	// Replan is a statement after which a connection plans its statements again. The Store runs it before
	// it writes more than 100 rows of access, because PostgreSQL keeps the plans for checks of
	// references. One that it made for small tables reads a table from its start for each row. Empty:
	// there is no such statement.
	Replan string
	// Silence is how long the Store waits for a database that does not answer: for a connection,
	// for the answer to a statement, for the next row, or for the end of a commit. After that the
	// call fails with svc.ErrUnavailable, whatever its context says. The Store gives up the
	// connection, and further calls fail immediately until the database answers again. Only the
	// driver limits a migration, or a transaction that writes more than 100 rows of access. 0, or
	// OneWriter: calls wait as long as their contexts allow.
	Silence time.Duration
	// Classify returns the meaning of an error of the driver; the error may wrap the driver's. It
	// returns:
	//
	//   - svc.ErrUnavailable when the database cannot be reached or cannot write at the moment;
	//   - svc.ErrChanged when the database rolled the transaction back because of others (a
	//     serialization failure, a deadlock), so that the Store tries again;
	//   - svc.ErrExists when a row with the same key exists;
	//   - nil for every other error.
	//
	// A nil Classify gives no error a meaning.
	Classify func(err error) error
}

// TenantDialect describes how the schema of a tenant belongs to those of a registry.
type TenantDialect struct {
	Name    string
	Number  int64
	Control string // the schema of the registry, and of the outbox that all tenants share
}

// Store is a [svc.FullStore] in a SQL database. Use [New]. All methods are safe for concurrent use.
type Store struct {
	db      database
	write   *pool // for migrations; nil in a transaction of the host
	dialect Dialect
	states  *states // in a transaction of the Store those of the Store, which do not grow there
	news    broadcast
	heard   notifications
	limiter notifyLimiter
	polled  *pollState // nil: the Store asks the database itself
	asking  *pool      // for the questions of followers; nil: those of db

	mutations atomic.Uint32    // the number of mutations tried
	chaining  *fairqueue.Queue // of the calls that chain events; nil in a transaction of the host
}

var _ svc.FullStore = (*Store)(nil)

// New returns a Store that writes through one pool and reads through the other; both may be the
// same pool. [Store.Migrate] makes the tables.
//
// Transactions of write must start as ones that write (SQLite: BEGIN IMMEDIATE), because some of
// them read first. The pools belong to the caller, who closes them when the Store is no longer in
// use. The Store needs no other cleanup.
func New(write, read *sql.DB, dialect Dialect) *Store {
	silence, schema := dialect.silence(read), dialect.schema()
	p := &pools{write: newPool(write, silence, schema), dialect: dialect}
	if p.read = p.write; read != write {
		p.read = newPool(read, silence, schema)
	}
	if dialect.OneWriter {
		p.queue = newQueue(p.write)
	}
	return newStore(p)
}

func newStore(p *pools) *Store {
	return &Store{
		db: p, write: p.write, dialect: p.dialect, states: &states{},
		chaining: fairqueue.New(fairqueue.Rules{Turns: 1}),
	}
}

// TakeTurns makes the calls of s take turns with those of other Stores. name names s among them.
// Call it before s is used.
func (s *Store) TakeTurns(turns *FairQueue, name string) {
	own := s.db.(*pools)
	own.write.take(turns.calls, name)
	own.read.take(turns.calls, name)
	s.asking = own.read.in(own.read.schema).take(turns.questions, name)
}

// TakeTurnsToWrite is TakeTurns for a Store with its own connections: any number of its reads run
// concurrently. While other Stores are busy, overlapping reads have the rate of [FairQueue].
func (s *Store) TakeTurnsToWrite(turns *FairQueue, name string) {
	own := s.db.(*pools)
	own.write.take(turns.calls, name)
	own.read.take(turns.reads, name)
	s.asking = own.read.in(own.read.schema)
}

// Sharing returns a Store for other tables of the same database, of which dialect has the Schema.
// It shares the connections of s: make both take turns.
func (s *Store) Sharing(dialect Dialect) *Store {
	own := s.db.(*pools)
	p := &pools{write: own.write.in(dialect.schema()), dialect: dialect}
	if p.read = p.write; own.read != own.write {
		p.read = own.read.in(dialect.schema())
	}
	return newStore(p)
}

// database runs a Store's statements: in pools of connections, or in one transaction of the host.
type database interface {
	// reading returns a session for reads. Each statement is its own transaction.
	reading() session
	// snapshot runs fn in a transaction that only reads and sees one state of the database.
	snapshot(ctx context.Context, fn work) error
	// transact runs fn in a transaction that may write, and rolls it back when fn fails or panics.
	// Isolation is the same in every database: a statement sees all commits before its start, and a
	// written row stays locked until the transaction ends.
	transact(ctx context.Context, fn work) error
}

// errUnchanged ends a transaction that has nothing to write. It is not a failure.
var errUnchanged = errors.New("unchanged")

// refusal wraps the error of a caller's function. The caller gets that error unchanged.
type refusal struct{ error }

// ask calls a caller's function with the current row. The function may end the transaction in two
// ways: it returns an error, or it changes nothing.
func ask[R any](change func(*R) (write bool, err error), row *R) error {
	write, err := change(row)
	if err != nil {
		return refusal{err}
	}
	if !write {
		return errUnchanged
	}
	return nil
}

// isOutcome reports whether err is an outcome of a method rather than a fault of the database.
func isOutcome(err error) bool {
	_, refused := errors.AsType[refusal](err)
	return refused || errors.Is(err, errUnchanged) ||
		errors.Is(err, svc.ErrNotFound) || errors.Is(err, svc.ErrExists)
}

// transact runs fn in a transaction that may write. When fn fails, panics or returns errUnchanged,
// the transaction writes nothing.
func (s *Store) transact(ctx context.Context, doing string, fn work) error {
	err := s.db.transact(ctx, fn)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return s.outcome(ctx, doing, err)
}

// outcome returns the error of a caller's function as it is, and others as faults.
func (s *Store) outcome(ctx context.Context, doing string, err error) error {
	if refused, ok := errors.AsType[refusal](err); ok {
		return refused.error
	}
	return s.fault(ctx, doing, err)
}

// fault adds the action to err, and marks errors that a later try may avoid. When ctx ended the
// call, drivers return their own errors: fault makes them wrap ctx.Err(). The context of a
// transaction also ends when the database is silent: then no caller has left.
func (s *Store) fault(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, svc.ErrNotFound) || errors.Is(err, svc.ErrExists) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(context.Cause(ctx), errSilent) {
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	} else if means := s.dialect.classify(err); means != nil {
		err = fmt.Errorf("%w: %w", means, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// silence returns the limit for the waits for db. Nil means no limit. A nil db is a transaction
// of the host.
func (d Dialect) silence(db *sql.DB) *answerLimit {
	if d.Silence <= 0 || d.OneWriter {
		return nil
	}
	return &answerLimit{longest: d.Silence, db: db}
}

// errClosed returns the error of a closed pool, which database/sql does not export.
var errClosed = sync.OnceValue(func() error {
	db := sql.OpenDB(nil)
	_ = db.Close()
	return db.Ping()
})

// classify returns svc.ErrUnavailable, svc.ErrChanged, svc.ErrExists or nil.
func (d Dialect) classify(err error) error {
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, errClosed()):
		return svc.ErrUnavailable
	case d.Classify == nil:
		return nil
	}
	return d.Classify(err)
}
