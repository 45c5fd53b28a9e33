// Package sqlite opens a SQLite file for package sqlstore, with the driver modernc.org/sqlite. The
// driver is pure Go and needs no C compiler.
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
	"unicode"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// Store is a [sqlstore.Store] that owns its file. Use [Open].
type Store struct {
	*sqlstore.Store
	file        *file
	write, read *sql.DB
	looker      *looker
	claims      *claims // nil: ClaimEvents reads the file each time
}

// Options configure [Open].
type Options struct {
	// Fast makes writes about five times cheaper: commits do not sync the disk (synchronous=NORMAL
	// instead of FULL). A crash of the process still loses nothing. A power cut or a crash of the
	// machine may undo the last acknowledged writes, such as the revocation of a key.
	Fast bool
	// ReadOnly opens a file that exists, and changes nothing: it makes and upgrades no tables, and
	// refuses those of another version. A copy in a folder of another user can be read. Every
	// method that writes fails with svc.ErrUnavailable.
	ReadOnly bool
}

// Open opens or creates the database at path, and creates or upgrades its tables. A new file has
// mode 0600. Open takes path literally: no URI, no ":memory:", no control characters.
//
// Any number of processes of one machine may open the file. All of them must use this package or
// the same settings. No other code of the process may open the file, not even to copy it: closing
// it would drop SQLite's locks. When the file, its -wal or its -shm is removed or replaced while it
// is open, mutations fail with svc.ErrUnavailable, and then svc.Service.Ping as well.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	store, err := open(ctx, path, options)
	if err != nil {
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	return store, nil
}

func open(ctx context.Context, path string, options Options) (*Store, error) {
	path, err := absoluteFile(path)
	if err != nil {
		return nil, err
	}
	if options.ReadOnly {
		return openToRead(ctx, path)
	}
	if err := create(path); err != nil {
		return nil, err
	}
	s := prepare(path, options, "mode=rw")
	if err := patiently(ctx, s.Migrate); err != nil {
		return nil, errors.Join(lackingRight(path, err), s.Close())
	}
	return s, nil
}

// absolute returns a path from the root, or an error for what would be another name by mistake: a
// variable that ends in a line break, say.
func absolute(path string) (string, error) {
	switch {
	case path == "" || path == ":memory:":
		return "", errors.New("not the path of a file: give one, such as svc.db")
	case strings.ContainsFunc(path, unicode.IsControl):
		return "", errors.New("the path must have no control characters, such as a line break")
	}
	return filepath.Abs(path)
}

// absoluteFile is absolute without a path that ends in a slash: a cut path would name another file.
func absoluteFile(path string) (string, error) {
	if path != "" && os.IsPathSeparator(path[len(path)-1]) {
		return "", errors.New("the path of a folder: give that of a file, such as " + path + "svc.db")
	}
	return absolute(path)
}

// prepare returns a Store for a file, whose tables may be missing. more are parameters of all
// connections.
func prepare(path string, options Options, more ...string) *Store {
	synchronous := "synchronous(full)"
	if options.Fast {
		synchronous = "synchronous(normal)"
	}
	writes := append([]string{"_txlock=immediate", pragma("foreign_keys(1)"),
		pragma("journal_mode(wal)"), pragma(synchronous)}, more...)
	reads := append([]string{pragma("query_only(1)")}, more...)
	if options.ReadOnly {
		writes = reads
	}
	file := &file{path: path, writes: !options.ReadOnly}
	s := &Store{
		file:   file,
		write:  file.pool(1, writes...),
		read:   file.pool(max(2, runtime.NumCPU()), reads...),
		looker: &looker{path: path, db: file.pool(1, reads...)},
	}
	s.Store = sqlstore.New(s.write, s.read, Dialect())
	return s
}

// Pending returns a script with the migrations that the file at path lacks. A missing file lacks
// all of them; an up-to-date one lacks none, and the script is "". Pending creates no file and
// changes nothing. [Open] runs the same migrations; the script is for hosts with their own
// migration tool.
func Pending(ctx context.Context, path string) (script string, err error) {
	named := path
	if path, err = absoluteFile(path); err != nil {
		return "", fmt.Errorf("SQLite database %q: %w", named, err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && checkLog(path) == nil {
		return sqlstore.SQL(Dialect()), nil
	}
	db := (&file{path: path}).pool(1, access(path))
	defer func() { err = errors.Join(err, db.Close()) }()
	if script, err = sqlstore.Pending(ctx, db, Dialect()); err != nil {
		err = fmt.Errorf("SQLite database %q: %w", path, lackingRight(path, err))
	}
	return script, err
}

// busyTimeout is how long a statement waits for other connections.
const busyTimeout = 5 * time.Second

// patiently calls migrate again while SQLite is busy. When several processes open a new file, only
// one of them can switch it to a write-ahead log. SQLite then returns busy to the others
// immediately, despite the timeout.
func patiently(ctx context.Context, migrate func(context.Context) error) error {
	for end := time.Now().Add(busyTimeout); ; time.Sleep(5 * time.Millisecond) {
		if err := migrate(ctx); code(err) != sqlite3.SQLITE_BUSY || time.Now().After(end) {
			return err
		}
	}
}

// DB returns the connection that writes. The host uses it for its own statements and transactions
// in the same file, and for [sqlstore.Tx]. Its transactions start with BEGIN IMMEDIATE.
//
// Keep transactions short: there is one connection, and a transaction that writes blocks all other
// writers in all processes. Code that holds the connection must not call a writing method of the
// Store except through [sqlstore.Tx]: it would wait for itself.
func (s *Store) DB() *sql.DB { return s.write }

// Close closes the file. The last process to close it moves the write-ahead log into the file.
func (s *Store) Close() error {
	return errors.Join(s.looker.close(), s.read.Close(), s.write.Close())
}

// Look implements [svc.FreshnessStore]: its answer changes with each commit of any process. It
// takes some nanoseconds on Linux, and some microseconds elsewhere.
func (s *Store) Look(context.Context) (uint64, error) { return s.looker.look() }

// Dialect returns SQLite's dialect, for hosts that bring their own pools to [sqlstore.New]. The
// pools need SQLite 3.44 or newer and foreign_keys on, and must begin transactions that write with
// BEGIN IMMEDIATE.
func Dialect() sqlstore.Dialect {
	return sqlstore.Dialect{
		Text: "TEXT", Bytes: "BLOB", Serial: "INTEGER", OneWriter: true, Rows: 4,
		Classify: classify,
		Identity: `SELECT file FROM pragma_database_list WHERE name = 'main'`,
		Find: `SELECT 'main', COALESCE((SELECT schema FROM pragma_table_list WHERE name = $1
			ORDER BY CASE schema WHEN 'temp' THEN 0 WHEN 'main' THEN 1 ELSE 2 END LIMIT 1), '')`,
	}
}

// classify recognizes taken keys, and temporary errors: a lock held past the timeout, or a disk
// that is full, failing or mounted read-only.
func classify(err error) error {
	if fault, ok := errors.AsType[*sqlite.Error](err); ok {
		switch fault.Code() {
		case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
			return svc.ErrExists
		case sqlite3.SQLITE_CONSTRAINT_COMMITHOOK:
			return errMoved
		}
	}
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL,
		sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY:
		return svc.ErrUnavailable
	}
	return nil
}

// code returns SQLite's primary result code, without the bits of its variants. For an error that is
// not SQLite's, it returns SQLITE_OK.
func code(err error) int {
	if fault, ok := errors.AsType[*sqlite.Error](err); ok {
		return fault.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}

// creating lets one goroutine at a time create a file: closing the new file drops the locks of
// connections that have opened it since.
var creating sync.Mutex

// create makes an empty file at path, for its owner only, unless one exists. SQLite gives its
// other files the same mode.
func create(path string) error {
	creating.Lock()
	defer creating.Unlock()
	if err := checkLog(path); err != nil {
		return err
	}
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

// pool returns connections that stay open: opening one costs as much as thirty reads.
func (f *file) pool(size int, parameters ...string) *sql.DB {
	path := filepath.ToSlash(f.path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive
	}
	timeout := pragma(fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()))
	parameters = append(parameters, timeout)
	address := url.URL{Scheme: "file", Path: path, RawQuery: strings.Join(parameters, "&")}
	opens, err := sqlite.NewConnector(address.String())
	if err != nil {
		panic(err) // the address parses
	}
	db := sql.OpenDB(connector{opens, f})
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

func pragma(setting string) string { return "_pragma=" + url.QueryEscape(setting) }
