package postgres

import (
	"context"
	"database/sql/driver"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// PgxTx is a transaction of pgx: a pgx.Tx, a *pgxpool.Tx, or a *pgx.Conn after BEGIN. A pool is no
// transaction: each of its statements may use another connection, and the first mutation fails.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Tx returns a Store that works inside tx, a transaction of the host. It is [sqlstore.Tx] for hosts
// that use pgx without database/sql, and keeps the same promises: what it writes takes effect if
// and only if the host commits, and a refusal leaves tx usable.
//
// The tables must be visible to tx, in the first schema of its search path. When the context of a
// call ends while a statement runs, pgx closes the connection, and tx is lost. Tx notifies other
// processes, whatever Options.NoNotify says.
func Tx(tx PgxTx) svc.FullStore { return sqlstore.TxOf(transactionOf{tx}, Dialect()) }

// transactionOf is the [sqlstore.Transaction] of pgx.
type transactionOf struct{ tx PgxTx }

func (t transactionOf) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (t transactionOf) Query(
	ctx context.Context, query string, args ...any,
) (sqlstore.Rows, error) {
	found, err := t.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return rowsOf{found}, nil
}

// rowsOf are the [sqlstore.Rows] of pgx.
type rowsOf struct{ pgx.Rows }

// Scan converts integers to booleans, as database/sql does and pgx does not.
func (r rowsOf) Scan(dest ...any) error {
	for i, to := range dest {
		if to, ok := to.(*bool); ok {
			dest = slices.Clone(dest)
			dest[i] = boolean{to}
		}
	}
	return r.Rows.Scan(dest...)
}

// Close implements [sqlstore.Rows].
func (r rowsOf) Close() error {
	r.Rows.Close()
	return r.Err()
}

// boolean scans an integer.
type boolean struct{ to *bool }

// Scan implements sql.Scanner.
func (b boolean) Scan(value any) error {
	is, err := driver.Bool.ConvertValue(value)
	if err == nil {
		*b.to = is.(bool)
	}
	return err
}
