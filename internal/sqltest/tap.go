package sqltest

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
)

// Tap shows the calls of connections to a function, which can fail them.
type Tap struct {
	driver.Connector
	Seen func(TapCall) error
}

// TapCall is a call of a connection.
type TapCall struct {
	// Verb is prepare, begin, exec, query, commit or rollback: what comes now, unless Seen fails. After a commit it is committed.
	Verb    string
	Conn    driver.Conn
	Tx      int64 // the number of its open transaction; 0: none
	Query   string
	Args    []driver.NamedValue
	Options driver.TxOptions
}

// transactions counts those of all connections.
var transactions atomic.Int64

func (t Tap) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := t.Connector.Connect(ctx)
	return &tappedConn{conn, t, 0}, err
}

type tappedConn struct {
	driver.Conn
	tap Tap
	tx  int64
}

func (c *tappedConn) see(call TapCall) error {
	call.Conn, call.Tx = c.Conn, c.tx
	return c.tap.Seen(call)
}

func (c *tappedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.see(TapCall{Verb: "prepare", Query: query}); err != nil {
		return nil, err
	}
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return tappedStmt{stmt, c, query}, err
}

func (c *tappedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.tx = transactions.Add(1)
	if err := c.see(TapCall{Verb: "begin", Options: options}); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return tappedTx{tx, c}, err
}

func (c *tappedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

type tappedStmt struct {
	driver.Stmt
	conn  *tappedConn
	query string
}

func (s tappedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.see(TapCall{Verb: "exec", Query: s.query, Args: args}); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s tappedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.conn.see(TapCall{Verb: "query", Query: s.query, Args: args}); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

type tappedTx struct {
	driver.Tx
	conn *tappedConn
}

// Commit rolls back when Seen fails it.
func (t tappedTx) Commit() error {
	err := t.conn.see(TapCall{Verb: "commit"})
	if err != nil {
		_ = t.Tx.Rollback()
	} else if err = t.Tx.Commit(); err == nil {
		err = t.conn.see(TapCall{Verb: "committed"})
	}
	t.conn.tx = 0
	return err
}

func (t tappedTx) Rollback() error {
	_ = t.conn.see(TapCall{Verb: "rollback"})
	t.conn.tx = 0
	return t.Tx.Rollback()
}
