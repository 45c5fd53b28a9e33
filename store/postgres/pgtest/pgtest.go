// Package pgtest gives PostgreSQL to tests: [Schema] makes a schema on a running server, [Start]
// runs a server that the test may kill.
//
// Without PostgreSQL a test is skipped, and says why. With SVC_REQUIRE_POSTGRES=1 it fails instead.
package pgtest

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/extsvc/svc/internal/longtest"
)

// localServer is the default of SVC_TEST_POSTGRES.
const localServer = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"

// All packages share a server, which has a hundred connections by default. A pool of a test has
// Connections, unless it needs more, and a package runs AtOnce tests with such pools concurrently.
// Most wait for the server.
const (
	Connections = 4
	AtOnce      = 4
)

// Server returns the URL of the server that tests share: SVC_TEST_POSTGRES, or the local one. A
// busy machine may take longer to connect than the 5 s of a Store.
func Server(t testing.TB) string {
	t.Helper()
	server := os.Getenv("SVC_TEST_POSTGRES")
	if server == "" {
		server = localServer
	}
	if !strings.Contains(server, "connect_timeout") {
		server = With(t, server, "connect_timeout", "60")
	}
	if err := takeShare(server); err != nil {
		missing(t, "PostgreSQL does not answer (SVC_TEST_POSTGRES may name another): %v", err)
	}
	return server
}

// missing skips a test that lacks PostgreSQL, or fails it when PostgreSQL is required.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("SVC_REQUIRE_POSTGRES") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf("NOT TESTED: "+format, args...)
}

// execute runs a statement on a new connection.
func execute(server, statement string) (err error) {
	db, err := sql.Open("pgx", server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return executeOn(db, statement)
}

// administrators has, by the URL of a server, connections that stay open until the process ends: a
// new one costs the server as much as ten reads.
var administrators sync.Map

// administer runs a statement, such as one that makes or drops what tests use.
func administer(server, statement string) error {
	db, there := administrators.Load(server)
	if !there {
		opened, err := sql.Open("pgx", server)
		if err != nil {
			return err
		}
		opened.SetMaxOpenConns(2)
		if db, there = administrators.LoadOrStore(server, opened); there {
			_ = opened.Close() // it has no connections
		}
	}
	return executeOn(db.(*sql.DB), statement)
}

func executeOn(db *sql.DB, statement string) (err error) {
	for range 10 {
		_, err = db.Exec(statement)
		if failed, is := errors.AsType[*pgconn.PgError](err); !is || failed.Code != deadlock {
			break
		}
	}
	return err
}

// deadlock is the SQLSTATE of a statement that may succeed when it is repeated: a DROP SCHEMA locks
// what a connection that is about to end has locked in another order.
const deadlock = "40P01"

var schemas atomic.Int64

// newName returns a name for a schema or a database. The first one of a process sweeps.
func newName(t testing.TB, server string) string {
	t.Helper()
	swept.Do(func() {
		if err := sweep(server); err != nil {
			t.Fatal(err)
		}
	})
	return fmt.Sprintf("svc_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemas.Add(1))
}

var swept sync.Once

// abandoned is the age at which nobody uses a schema or a database any longer.
const abandoned = 24 * time.Hour

// sweep drops what runs have left that were interrupted long ago.
func sweep(server string) (err error) {
	db, err := sql.Open("pgx", server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var drops []string
	for kind, list := range map[string]string{
		"SCHEMA IF EXISTS %s CASCADE":        "SELECT nspname FROM pg_namespace WHERE nspname",
		"DATABASE IF EXISTS %s WITH (FORCE)": "SELECT datname FROM pg_database WHERE datname",
	} {
		rows, err := db.Query(list + ` LIKE 'svc\_test\_%'`)
		if err != nil {
			return err
		}
		for rows.Next() {
			var name string
			var pid, made int64
			err := rows.Scan(&name)
			_, parsed := fmt.Sscanf(name, "svc_test_%d_%d_", &pid, &made)
			if err == nil && parsed == nil && time.Since(time.Unix(0, made)) > abandoned {
				drops = append(drops, "DROP "+fmt.Sprintf(kind, name), "DROP ROLE IF EXISTS "+name)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	for _, drop := range drops {
		err = errors.Join(err, execute(server, drop))
	}
	return err
}

// Schema returns the URL of a new, empty schema on the shared server. The end of the test drops it.
func Schema(t testing.TB) string {
	t.Helper()
	address, drop := NewSchema(t)
	dropAtEnd(t, drop)
	return address
}

func dropAtEnd(t testing.TB, drop func() error) {
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
}

// NewSchema is [Schema] for a schema that outlives the test: the caller drops it.
func NewSchema(t testing.TB) (address string, drop func() error) {
	t.Helper()
	server := Server(t)
	name := newName(t, server)
	unsafe := With(t, server, "synchronous_commit", "off") // a crash may lose the schema: no harm
	unsafe = With(t, unsafe, "lock_timeout", "60s")        // of a transaction that a test has left
	if err := administer(unsafe, "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return With(t, server, "search_path", name), func() error {
		return administer(unsafe, "DROP SCHEMA "+name+" CASCADE")
	}
}

// Database returns the URL of a new, empty database on the shared server, and of a role that owns
// it and is no superuser. The end of the test drops both. A database with its tables takes a second
// of a processor, so the short form of a test has none.
func Database(t testing.TB) string {
	t.Helper()
	if _, benchmark := t.(*testing.B); !benchmark {
		longtest.Test(t, "this with a database of PostgreSQL")
	}
	address, drop := NewDatabase(t)
	dropAtEnd(t, drop)
	return address
}

// NewDatabase is [Database] for a database that outlives the test: the caller drops it.
func NewDatabase(t testing.TB) (address string, drop func() error) {
	t.Helper()
	server := Server(t)
	name := newName(t, server)
	for _, statement := range []string{
		"CREATE ROLE " + name + " LOGIN", "CREATE DATABASE " + name + " OWNER " + name,
	} {
		if err := administer(server, statement); err != nil {
			t.Fatal(err)
		}
	}
	own, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	own.User, own.Path = url.User(name), "/"+name
	return own.String(), func() error {
		return errors.Join(administer(server, "DROP DATABASE "+name+" WITH (FORCE)"),
			administer(server, "DROP ROLE "+name))
	}
}

// Open opens a database with plain database/sql, until the test ends.
func Open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// With adds a setting to a URL or to a list of settings.
func With(t testing.TB, address, name, value string) string {
	t.Helper()
	if !strings.Contains(address, "://") {
		return fmt.Sprintf("%s %s='%s'", address, name, value)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // a plus is one, as for libpq
	return u.String()
}
