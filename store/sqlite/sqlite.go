// Package sqlite opens a SQLite file for package sqlstore, with the driver modernc.org/sqlite: Go alone, no C compiler.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// Store is a [sqlstore.Store] that owns its file. Use [Open].
type Store struct {
	*sqlstore.Store
	write, read *sql.DB
}

// Options are the choices of [Open].
type Options struct {
	// Fast makes writes about five times cheaper by leaving out the sync of each commit (synchronous=NORMAL instead of
	// FULL). A crash of the process still loses nothing; a power cut or a crash of the machine may undo the last writes
	// that were acknowledged, the revocation of a key among them.
	Fast bool
}

// Open opens or creates the database at path, with mode 0600 when it is new, and makes or upgrades its tables. Any number of
// processes of one machine may have it open; all of them must open it by this package or with the same settings. The
// path is taken as it is: no URI, no ":memory:".
//
// No other code of the process may open the file, not even to copy it: closing it would drop SQLite's locks.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	store, err := open(ctx, path, options)
	if err != nil {
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	return store, nil
}

func open(ctx context.Context, path string, options Options) (*Store, error) {
	if path == "" || path == ":memory:" {
		return nil, errors.New("not the path of a file")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	synchronous := "synchronous(full)"
	if options.Fast {
		synchronous = "synchronous(normal)"
	}
	s := &Store{
		write: pool(path, 1, "_txlock=immediate", pragma("foreign_keys(1)"), pragma("journal_mode(wal)"), pragma(synchronous)),
		read:  pool(path, max(2, runtime.NumCPU()), pragma("query_only(1)")),
	}
	s.Store = sqlstore.New(s.write, s.read, Dialect())
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Pending returns the migrations that the file at path lacks, as a script: all of them where there is no file, "" where it
// lacks none. It makes no file and changes nothing. [Open] runs them; a script is for hosts with a tool of their own.
func Pending(ctx context.Context, path string) (script string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return sqlstore.SQL(Dialect()), nil
	}
	db := pool(path, 1, "mode=rw")
	defer func() { err = errors.Join(err, db.Close()) }()
	if script, err = sqlstore.Pending(ctx, db, Dialect()); err != nil {
		err = fmt.Errorf("SQLite database %q: %w", path, err)
	}
	return script, err
}

// busyTimeout is how long a statement waits for other connections.
const busyTimeout = 5 * time.Second

// migrate makes the tables. While several open a new file, SQLite answers some of them that it is busy at once, whatever
// the timeout: only one can switch the file to a write-ahead log. So this tries again.
func (s *Store) migrate(ctx context.Context) error {
	for end := time.Now().Add(busyTimeout); ; time.Sleep(5 * time.Millisecond) {
		if err := s.Migrate(ctx); code(err) != sqlite3.SQLITE_BUSY || time.Now().After(end) {
			return err
		}
	}
}

// DB returns the connection that writes, for the host's own statements and transactions in the same file, and for
// [sqlstore.Tx]. Its transactions start with BEGIN IMMEDIATE. Keep them short: there is one connection, and one that writes
// keeps every other writer of all processes waiting. Who holds it and calls a method of the Store that writes, other than through
// [sqlstore.Tx], waits for itself.
func (s *Store) DB() *sql.DB { return s.write }

// Close closes the file. The last one of all processes to do so moves what is in the write-ahead log into the file.
func (s *Store) Close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// Dialect is SQLite's, for hosts that bring pools of their own to [sqlstore.New]. Those must be of SQLite 3.44 or newer, run
// with foreign_keys on, and begin the transactions that write with BEGIN IMMEDIATE.
func Dialect() sqlstore.Dialect {
	return sqlstore.Dialect{Text: "TEXT", Bytes: "BLOB", OneWriter: true, Rows: 4, Classify: classify}
}

// classify finds the errors that pass: locked for longer than the timeout, a disk that is full, failing, or mounted
// read-only.
func classify(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return svc.ErrUnavailable
	}
	return nil
}

// code returns SQLite's primary result code, without the bits that tell variants apart; SQLITE_OK when err is not its.
func code(err error) int {
	if fault, ok := errors.AsType[*sqlite.Error](err); ok {
		return fault.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}

// creating lets one caller at a time create a file: closing it drops the locks of whoever has opened it meanwhile.
var creating sync.Mutex

// create makes an empty file at path, for the owner alone, unless there is one. SQLite gives its other files the same mode.
func create(path string) error {
	creating.Lock()
	defer creating.Unlock()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return checkKind(path)
	} else if err != nil {
		return err
	}
	return file.Close()
}

func checkKind(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("is a directory")
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	}
	return nil
}

// pool returns connections that are opened once and kept: opening one costs as much as thirty reads.
func pool(path string, size int, parameters ...string) *sql.DB {
	if path = filepath.ToSlash(path); !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive
	}
	parameters = append(parameters, pragma(fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())))
	address := url.URL{Scheme: "file", Path: path, RawQuery: strings.Join(parameters, "&")}
	db, err := sql.Open("sqlite", address.String())
	if err != nil {
		panic(err) // the driver is imported above
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

func pragma(setting string) string { return "_pragma=" + url.QueryEscape(setting) }
