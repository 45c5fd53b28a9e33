package sqlstore

import (
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
	s := &Store{db: hostTx{tx: tx, uninterrupted: dialect.OneWriter}, dialect: dialect}
	s.mutations.Store(rand.Uint32()) // its few mutations share the work of forgetting with those of others
	return inTx{s}
}

// inTx is a Store without what makes no sense in a transaction.
type inTx struct{ *Store }

var errInTx = errors.New("not in a transaction of the host: ask the store that it belongs to")

func (inTx) AwaitChange(context.Context, int64) error { return errInTx }

func (inTx) ClaimEvents(context.Context, time.Time, time.Time, int) ([]svc.Event, error) {
	return nil, errInTx
}

// hostTx is a transaction of the host.
type hostTx struct {
	tx            *sql.Tx
	uninterrupted bool // see Dialect.OneWriter
}

func (h hostTx) reading() session { return session{tx: h.tx} }

func (h hostTx) snapshot(ctx context.Context, fn work) error { return fn(ctx, h.reading()) }

func (h hostTx) transact(ctx context.Context, fn work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if h.uninterrupted {
		ctx = context.WithoutCancel(ctx)
	}
	return savepoint(ctx, session{tx: h.tx}, fn)
}
