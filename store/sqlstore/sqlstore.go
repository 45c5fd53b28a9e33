// Package sqlstore keeps everything in a SQL database, through database/sql and without a driver: one set of statements
// for every [Dialect]. Packages such as store/sqlite bring a driver, its dialect and pools that are set up well.
package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

// Dialect is what databases do not agree on.
type Dialect struct {
	// Text is the type of columns of text that is compared and ordered byte by byte, Bytes that of columns of bytes.
	Text, Bytes string
	// NarrowIndexes says that the rows of an index are limited in length, as PostgreSQL's are to 2,704 bytes. What was installed is then
	// listed from its table; without a limit an index holds all of the list.
	NarrowIndexes bool
	// Lock is a statement by which a migration waits for those of other processes, until its transaction ends.
	// "": every transaction of the pool that writes waits for the others already.
	Lock string
	// Notify is a statement that every mutation runs last, to wake other processes after its commit: whoever hears it calls
	// [Store.Wake]. "" none: they notice within a second.
	Notify string
	// OneWriter says that transactions that write wait for each other before they begin, as SQLite's do. Mutations that
	// meet then share one transaction, and so one sync of the disk; one that has begun is not interrupted, because
	// the database would undo more than its own statement.
	OneWriter bool
	// Rows is how many rows one statement writes at most: 1, 4, 16, 64 or 256. The time of a driver that looks its parameters up by
	// name, as SQLite's do, grows with their square. 0: 64.
	Rows int
	// Silence is how long the database may say nothing while the Store waits for it: for a connection, for the answer to a
	// statement, for the next row, for the end of a commit. Then the call is svc.ErrUnavailable, whatever its context says,
	// its connection is given up, and calls that come before the database answers again fail at once. A transaction that
	// writes more than 100 rows of access, and a migration, may wait for longer, as the driver lets them. 0, or with
	// OneWriter: calls wait as long as their contexts say.
	Silence time.Duration
	// Classify says what an error of the driver means: svc.ErrUnavailable when the database cannot be reached or cannot
	// write just now, svc.ErrChanged when it rolled the transaction back because of others (a serialization failure, a
	// deadlock), which is tried again, and nil for everything else. It gets errors that wrap the driver's. Nil: no
	// error means anything.
	Classify func(err error) error
}

// Store is a [svc.Store] in a SQL database. Use [New]. All methods are safe for concurrent use.
type Store struct {
	db      database
	write   *pool // for migrations; nil in a transaction of the host
	dialect Dialect
	news    broadcast

	mutations atomic.Uint32 // how many it has tried
}

var _ svc.Store = (*Store)(nil)

// New returns a Store that writes through one pool and reads through the other; the two may be one. The transactions of
// write must start as ones that write (SQLite: BEGIN IMMEDIATE): some read first. The tables are made by [Store.Migrate].
// The pools stay the caller's: closing them, once nobody uses the Store, is all that it needs.
func New(write, read *sql.DB, dialect Dialect) *Store {
	silence := dialect.silence(read)
	p := &pools{write: newPool(write, silence), dialect: dialect}
	if p.read = p.write; read != write {
		p.read = newPool(read, silence)
	}
	if dialect.OneWriter {
		p.queue = &queue{pool: p.write}
	}
	return &Store{db: p, write: p.write, dialect: dialect}
}

// database is where a Store's statements run: pools of connections, or one transaction of the host.
type database interface {
	// reading returns a session whose statements read, and are each their own.
	reading() session
	// snapshot runs fn in a transaction that reads, and sees one state of the database throughout.
	snapshot(ctx context.Context, fn work) error
	// transact runs fn in a transaction that may write, and undoes it when fn fails or panics. Isolation is the same
	// everywhere: each statement sees what is committed before it starts, and a row that is written stays locked until the end.
	transact(ctx context.Context, fn work) error
}

// errUnchanged ends a transaction that has nothing to write, without being a failure.
var errUnchanged = errors.New("unchanged")

// refusal is the error of a caller's function, which is returned as it is.
type refusal struct{ error }

// ask calls a caller's function with a row as it is: what it refuses, and that it changes nothing, end the transaction.
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

// isOutcome reports whether err is an outcome of a method, and no fault of the database.
func isOutcome(err error) bool {
	_, refused := errors.AsType[refusal](err)
	return refused || errors.Is(err, errUnchanged) || errors.Is(err, svc.ErrNotFound) || errors.Is(err, svc.ErrExists)
}

// transact runs fn in a transaction that may write. Nothing is written when fn fails or panics, or returns errUnchanged.
func (s *Store) transact(ctx context.Context, doing string, fn work) error {
	err := s.db.transact(ctx, fn)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if refused, ok := errors.AsType[refusal](err); ok {
		return refused.error
	}
	return s.fault(ctx, doing, err)
}

// snapshot runs fn in a transaction that reads, and sees one state of the database throughout.
func (s *Store) snapshot(ctx context.Context, doing string, fn work) error {
	return s.fault(ctx, doing, s.db.snapshot(ctx, fn))
}

// fault says what was being done, and tells apart what a later try may mend. Drivers have errors of their own for a call
// that its context ended: those wrap ctx.Err() as well.
func (s *Store) fault(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, svc.ErrNotFound) || errors.Is(err, svc.ErrExists) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if ended := ctx.Err(); ended != nil {
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	} else if means := s.dialect.classify(err); means != nil {
		err = fmt.Errorf("%w: %w", means, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// silence returns what bounds the waits for db, nil in a transaction of the host. Nil: nothing does.
func (d Dialect) silence(db *sql.DB) *silence {
	if d.Silence <= 0 || d.OneWriter {
		return nil
	}
	return &silence{longest: d.Silence, db: db}
}

// classify returns svc.ErrUnavailable, svc.ErrChanged or nil.
func (d Dialect) classify(err error) error {
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, context.DeadlineExceeded):
		return svc.ErrUnavailable
	case d.Classify == nil:
		return nil
	}
	return d.Classify(err)
}
