package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	moderncsqlite "modernc.org/sqlite"

	"github.com/extsvc/svc/internal/sqltest"
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

func (s *tap) see(call sqltest.TapCall) error {
	switch call.Verb {
	case "prepare":
		s.readied.Add(1)
	case "begin":
		s.begun.Add(1)
	case "exec", "query":
		if s.run != nil {
			return s.run(call.Conn, call.Query)
		}
	case "commit":
		if s.commit != nil {
			return s.commit()
		}
	case "committed":
		s.commits.Add(1)
	}
	return nil
}

// tapped opens a store of one connection through a tap.
func tapped(t *testing.T, path string, seen *tap) *sqlstore.Store {
	db := tappedDB(t, path, seen)
	return sqlstore.New(db, db, sqlite.Dialect())
}

func tappedDB(t *testing.T, path string, seen *tap) *sql.DB {
	const settings = "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)"
	db := sql.OpenDB(sqltest.Tap{Connector: file("file:" + path + settings), Seen: seen.see})
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// file connects to a SQLite file, given the driver's name for it.
type file string

func (f file) Connect(context.Context) (driver.Conn, error) { return f.Driver().Open(string(f)) }

func (f file) Driver() driver.Driver { return &moderncsqlite.Driver{} }
