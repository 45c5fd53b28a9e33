package bench_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"sync"
)

// observer records what a database is asked to do: every statement, BEGIN and COMMIT. With prepared
// statements each is one round trip.
type observer struct {
	mu    sync.Mutex
	trips []string
}

func (o *observer) note(trip string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trips = append(o.trips, strings.Join(strings.Fields(trip), " "))
}

// of returns what call asks the database to do.
func (o *observer) of(call func() error) ([]string, error) {
	o.trips = nil
	err := call()
	return o.trips, err
}

type observedConnector struct {
	driver.Connector
	seen *observer
}

func (c observedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return observedConn{conn, c.seen}, err
}

type observedConn struct {
	driver.Conn
	seen *observer
}

func (c observedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return observedStmt{stmt, query, c.seen}, err
}

func (c observedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.seen.note("BEGIN")
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return observedTx{tx, c.seen}, err
}

func (c observedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

type observedTx struct {
	driver.Tx
	seen *observer
}

func (t observedTx) Commit() error {
	t.seen.note("COMMIT")
	return t.Tx.Commit()
}

func (t observedTx) Rollback() error {
	t.seen.note("ROLLBACK")
	return t.Tx.Rollback()
}

type observedStmt struct {
	driver.Stmt
	query string
	seen  *observer
}

func (s observedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.seen.note(s.query)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s observedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.seen.note(s.query)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
