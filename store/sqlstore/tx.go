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

// Tx returns a Store that works inside tx, a transaction of the host on a database whose tables [Store.Migrate] has made:
// what it writes is there if and only if the host commits. It never commits or rolls back tx. It is for svc.Service.WithStore,
// and good until tx ends; like tx it is for one goroutine at a time.
//
//   - Each method that writes does so inside a savepoint: when it fails, tx holds nothing of it and can be used on,
//     unless the connection is lost.
//   - Reads see what tx has written, and are as consistent with each other as tx's isolation makes them.
//   - A conflict with others is svc.ErrChanged, after which tx must be rolled back and may be run again.
//   - AwaitChange and ClaimEvents fail: they make no sense in a transaction.
//
// SQLite: begin tx as one that writes (BEGIN IMMEDIATE). PostgreSQL: READ COMMITTED; everybody who writes waits from
// tx's first mutation to its end, so make it late.
func Tx(tx *sql.Tx, dialect Dialect) svc.Store {
	return within(hostTx{tx: tx, uninterrupted: dialect.OneWriter, silence: dialect.silence(nil)}, dialect)
}

// Atomically implements [svc.TransactionStore].
func (s *Store) Atomically(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
	err := s.transact(ctx, "write together", func(ctx context.Context, tx session) error {
		calls := &joinedTx{tx: tx}
		err := cmp.Or(fn(ctx, within(calls, s.dialect)), calls.failed)
		if err != nil && s.dialect.classify(err) == nil {
			return refusal{err} // it says already what was being done
		}
		return err
	})
	if err == nil {
		s.news.tell() // it may have changed something
	}
	return err
}

// within returns a Store that works in a transaction.
func within(tx database, dialect Dialect) svc.Store {
	s := &Store{db: tx, dialect: dialect}
	s.mutations.Store(rand.Uint32()) // its few mutations share the work of forgetting with those of others
	return inTx{s}
}

// inTx is a Store without what makes no sense in a transaction.
type inTx struct{ *Store }

var errInTx = errors.New("not in a transaction: ask the store that it belongs to")

func (inTx) AwaitChange(context.Context, int64) error { return errInTx }

func (inTx) ClaimEvents(context.Context, time.Time, time.Time, int) ([]svc.Event, error) {
	return nil, errInTx
}

// hostTx is a transaction of the host.
type hostTx struct {
	tx            *sql.Tx
	uninterrupted bool // see Dialect.OneWriter
	silence       *silence
}

func (h hostTx) reading() session { return session{tx: h.tx, silence: h.silence} }

func (h hostTx) snapshot(ctx context.Context, fn work) error { return fn(ctx, h.reading()) }

func (h hostTx) transact(ctx context.Context, fn work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if h.uninterrupted {
		ctx = context.WithoutCancel(ctx)
	}
	return savepoint(ctx, h.reading(), fn)
}

// joinedTx is the transaction of calls that are joined. What one of them has written before it failed is undone with all of it.
type joinedTx struct {
	tx     session
	failed error // of the first that did: the transaction is not to be committed
}

func (j *joinedTx) reading() session { return j.tx }

func (j *joinedTx) snapshot(ctx context.Context, fn work) error { return fn(ctx, j.tx) }

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
