// Package sqlstore keeps everything in a SQL database, through database/sql and without a driver: one set of statements
// for every [Dialect]. Packages such as store/sqlite bring a driver, its dialect and pools that are set up well.
package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/extsvc/svc"
)

// Dialect is what databases do not agree on.
type Dialect struct {
	// Text is the type of columns of text that is compared and ordered byte by byte, Bytes that of columns of bytes.
	Text, Bytes string
	// Lock is a statement by which a migration waits for those of other processes, until its transaction ends.
	// "": every transaction of the pool that writes waits for the others already.
	Lock string
	// Unavailable reports whether err says that the database cannot be reached or cannot write just now. It is asked
	// for everything that a driver returns. Nil: never.
	Unavailable func(err error) bool
}

// Store is a [svc.Store] in a SQL database. Use [New]. All methods are safe for concurrent use.
type Store struct {
	write, read *pool
	dialect     Dialect
}

var _ svc.Store = (*Store)(nil)

// New returns a Store that writes through one pool and reads through the other; the two may be one. The transactions of
// write must start as ones that write (SQLite: BEGIN IMMEDIATE): some read first. The tables are made by [Store.Migrate].
// The pools stay the caller's: closing them, once nobody uses the Store, is all that it needs.
func New(write, read *sql.DB, dialect Dialect) *Store {
	s := &Store{write: newPool(write), dialect: dialect}
	if s.read = s.write; read != write {
		s.read = newPool(read)
	}
	return s
}

// errUnchanged ends a transaction that has nothing to write, without being a failure.
var errUnchanged = errors.New("unchanged")

// refusal is the error of a caller's function, which is returned as it is.
type refusal struct{ error }

// change runs fn in a transaction and counts the generation up, last: whoever sees the new generation sees what fn wrote,
// and writers wait for each other only at the end. Nothing is written when fn fails or panics, or returns errUnchanged.
func (s *Store) change(ctx context.Context, doing string, fn func(tx session) error) error {
	return s.transact(ctx, doing, func(tx session) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.touch(ctx, `UPDATE svc_generation SET value = value + 1 WHERE id = 1`)
	})
}

// transact runs fn in a transaction that may write. Isolation is the same everywhere: each statement sees what is
// committed before it starts, and a row that is written stays locked until the end.
func (s *Store) transact(ctx context.Context, doing string, fn func(tx session) error) error {
	err := s.write.transact(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, fn)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if refused, ok := errors.AsType[refusal](err); ok {
		return refused.error
	}
	return s.fault(ctx, doing, err)
}

// snapshot runs fn in a transaction that reads, and sees one state of the database throughout.
func (s *Store) snapshot(ctx context.Context, doing string, fn func(tx session) error) error {
	return s.fault(ctx, doing, s.read.transact(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, fn))
}

// fault says what was being done, and tells apart what a later try may mend. Drivers have errors of their own for a call
// that its context ended: those wrap ctx.Err() as well.
func (s *Store) fault(ctx context.Context, doing string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, svc.ErrNotFound), errors.Is(err, svc.ErrExists):
		return fmt.Errorf("%s: %w", doing, err)
	case ended != nil && !errors.Is(err, ended):
		return fmt.Errorf("%s: %w: %w", doing, ended, err)
	case ended == nil && s.unavailable(err):
		return fmt.Errorf("%s: %w: %w", doing, svc.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (s *Store) unavailable(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, context.DeadlineExceeded) ||
		s.dialect.Unavailable != nil && s.dialect.Unavailable(err)
}
