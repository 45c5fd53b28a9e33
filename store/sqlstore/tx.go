package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/extsvc/svc"
)

// Tx returns a Store that works inside tx, a transaction of the host. [Store.Migrate] must have
// made the tables of its database. The writes of this Store take effect if and only if the host
// commits; the Store never commits or rolls back tx.
//
// Use it with svc.Service.WithTx until tx ends, in one goroutine at a time, as tx itself.
//
//   - Each method that writes uses a savepoint: when it fails, tx holds nothing of it and stays
//     usable, unless the connection is lost.
//   - Reads see what tx has written. The isolation of tx decides how consistent they are with each
//     other.
//   - A conflict with others is svc.ErrChanged. The host must then roll back tx and may run it
//     again.
//   - AwaitChange and ClaimEvents fail: they make no sense in a transaction.
//
// SQLite: begin tx as one that writes (BEGIN IMMEDIATE). All other writers wait for its end. SQLite
// rolls back all of tx for some errors of a statement: a full disk, an interruption by a context,
// OR ROLLBACK. Later calls that write fail then.
//
// PostgreSQL: use READ COMMITTED. In another isolation, calls fail that change access or rely on it,
// because tx may see rights that are gone. Others wait for the end of tx that write the same rows,
// issue for the same holder, or change the caller's key; after a change of access in tx, those who
// rely on access or change it. While tx issues the very first key of a database without a pepper,
// those also wait who issue or use keys. All others do not wait. Lock in the order of [svc.Locks];
// two transactions that do not may deadlock, and one of them is svc.ErrChanged.
func Tx(tx *sql.Tx, dialect Dialect) svc.FullStore { return TxOf(sqlTx{tx}, dialect) }

// TxOf is [Tx] for a transaction of a driver that the host uses without database/sql. For pgx,
// store/postgres has it ready as postgres.Tx.
func TxOf(tx Transaction, dialect Dialect) svc.FullStore {
	host := hostTx{
		tx: tx, oneWriter: dialect.OneWriter, silence: dialect.silence(nil),
		schema: dialect.schema(),
	}
	return within(host, dialect, &states{})
}

// Transaction runs the statements of one transaction. One goroutine at a time uses it, and closes
// the Rows of a query before the next statement. Errors are those of the driver, for
// [Dialect.Classify].
type Transaction interface {
	// Exec runs a statement and returns how many rows it wrote.
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	// Query runs a query. It returns an error or Rows, not both.
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}

// Rows is the answer to a query, with the methods of [sql.Rows]. Scan converts integers, texts and
// bytes as that of sql.Rows does: it copies bytes, null becomes a nil pointer or nil bytes, and a
// [sql.Scanner] gets an int64, a string, a []byte or nil.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	// Err returns the error that ended Next, or nil.
	Err() error
	// Close ends the query. Calls after the first do nothing.
	Close() error
}

// sqlTx is the [Transaction] of database/sql.
type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return written(t.tx.ExecContext(ctx, query, args...))
}

func (t sqlTx) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := t.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Atomically implements [svc.TransactionStore].
func (s *Store) Atomically(
	ctx context.Context, fn func(ctx context.Context, tx svc.Store) error,
) error {
	err := s.transact(ctx, "write together", func(ctx context.Context, tx session) error {
		var changed []mutation
		calls := &joinedTx{tx: tx}
		calls.tx.changed = &changed
		err := cmp.Or(fn(ctx, within(calls, s.dialect, s.states)), calls.failed)
		switch {
		case err == nil && len(changed) > 0:
			return s.record(ctx, tx, changed...)
		case err != nil && s.dialect.classify(err) == nil:
			return refusal{err} // it already names the action
		}
		return err
	})
	if err == nil {
		s.committed()
	}
	return err
}

// within returns a Store that works in a transaction, and knows these states.
func within(tx database, dialect Dialect, known *states) svc.FullStore {
	s := &Store{db: tx, dialect: dialect, states: known}
	// A random start: these Stores are short-lived, and only some of them delete old changes.
	s.mutations.Store(rand.Uint32())
	return inTx{s}
}

// inTx is a Store without the methods that make no sense in a transaction.
type inTx struct{ *Store }

var errInTx = errors.New("not possible in a transaction: call the store outside the transaction")

func (inTx) AwaitChange(context.Context, int64) error { return errInTx }

func (inTx) ClaimEvents(context.Context, time.Time, time.Time, int) ([]svc.Event, error) {
	return nil, errInTx
}

// hostTx is the [database] of a Store inside a transaction of the host.
type hostTx struct {
	tx        Transaction
	oneWriter bool // see Dialect.OneWriter
	silence   *answerLimit
	schema    schema
}

func (h hostTx) reading() session {
	return session{host: h.tx, silence: h.silence, schema: h.schema}
}

func (h hostTx) snapshot(ctx context.Context, fn work) error { return fn(ctx, h.reading()) }

func (h hostTx) transact(ctx context.Context, fn work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tx := h.reading()
	if h.oneWriter {
		tx.caller, ctx = ctx, context.WithoutCancel(ctx)
		if err := tx.proveOpen(ctx); err != nil {
			return transactionLost{err}
		}
	}
	return savepoint(ctx, tx, fn)
}

// joinedTx is the [database] of a Store inside Atomically. When one call fails, the whole
// transaction is rolled back, and with it all that the call wrote.
type joinedTx struct {
	tx     session
	failed error // the first failure; the transaction must not commit after it
}

func (j *joinedTx) reading() session { return j.tx }

func (j *joinedTx) snapshot(ctx context.Context, fn work) error {
	if err := fn(ctx, j.tx); err != nil {
		return err
	}
	return j.tx.answers(ctx)
}

func (j *joinedTx) transact(ctx context.Context, fn work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := fn(ctx, j.tx)
	if !errors.Is(err, errUnchanged) {
		j.failed = cmp.Or(j.failed, err)
	}
	return err
}
