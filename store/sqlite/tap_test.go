package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	moderncsqlite "modernc.org/sqlite"

	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// tap observes the calls to the driver, and can disturb them.
type tap struct {
	run     func(conn driver.Conn, query string) error // before each statement; nil: nothing
	commit  func() error                               // instead of a commit, when it fails; nil: nothing
	begun   atomic.Int64
	readied atomic.Int64 // statements that were prepared
	commits atomic.Int64 // those that succeeded
}

// tapped opens a store of one connection through a tap.
func tapped(t *testing.T, path string, seen *tap) *sqlstore.Store {
	db := tappedDB(t, path, seen)
	return sqlstore.New(db, db, sqlite.Dialect())
}

func tappedDB(t *testing.T, path string, seen *tap) *sql.DB {
	const settings = "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)"
	db := sql.OpenDB(connector{"file:" + path + settings, seen})
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type connector struct {
	dsn  string
	seen *tap
}

func (c connector) Driver() driver.Driver { return &moderncsqlite.Driver{} }

func (c connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.dsn)
	return tappedConn{conn, c.seen}, err
}

type tappedConn struct {
	driver.Conn
	seen *tap
}

func (c tappedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.seen.readied.Add(1)
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return tappedStmt{stmt, c, query}, err
}

type tappedStmt struct {
	driver.Stmt
	conn  tappedConn
	query string
}

func (s tappedStmt) tap() error {
	if s.conn.seen.run == nil {
		return nil
	}
	return s.conn.seen.run(s.conn.Conn, s.query)
}

func (s tappedStmt) ExecContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Result, error) {
	if err := s.tap(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s tappedStmt) QueryContext(
	ctx context.Context, args []driver.NamedValue,
) (driver.Rows, error) {
	if err := s.tap(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (c tappedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.seen.begun.Add(1)
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return tappedTx{tx, c.seen}, err
}

type tappedTx struct {
	driver.Tx
	seen *tap
}

func (t tappedTx) Commit() error {
	if t.seen.commit != nil {
		if err := t.seen.commit(); err != nil {
			_ = t.Rollback()
			return err
		}
	}
	err := t.Tx.Commit()
	if err == nil {
		t.seen.commits.Add(1)
	}
	return err
}
