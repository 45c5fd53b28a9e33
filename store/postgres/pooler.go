package postgres

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5/stdlib"
)

// unprepared makes connections that prepare nothing on the server. A prepared statement would be
// missing on the next connection that a pooler provides.
type unprepared struct{ driver.Connector }

func (u unprepared) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := u.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return unpreparedConn{conn.(*stdlib.Conn)}, nil
}

type unpreparedConn struct{ *stdlib.Conn }

func (c unpreparedConn) Prepare(query string) (driver.Stmt, error) {
	return unpreparedStatement{c.Conn, query}, nil
}

func (c unpreparedConn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return c.Prepare(query)
}

// unpreparedStatement is a query that goes to the server as text each time.
type unpreparedStatement struct {
	conn  *stdlib.Conn
	query string
}

func (s unpreparedStatement) Close() error { return nil }

func (s unpreparedStatement) NumInput() int { return -1 } // unknown

func (s unpreparedStatement) ExecContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s unpreparedStatement) QueryContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

var errNoContext = errors.New("not supported: call the method with a context")

func (s unpreparedStatement) Exec([]driver.Value) (driver.Result, error) {
	return nil, errNoContext
}

func (s unpreparedStatement) Query([]driver.Value) (driver.Rows, error) {
	return nil, errNoContext
}
