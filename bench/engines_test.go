package bench_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	modernc "modernc.org/sqlite"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// engine is a kind of database.
type engine struct {
	name    string
	dialect sqlstore.Dialect
	check   func() error                                             // fails when the database is missing
	place   func(name string) (string, error)                        // makes an empty database; returns its path or address
	open    func(place string) (closingStore, error)                 // as a host does
	connect func(place string, seen *observer) (write, read *sql.DB) // returns pools like those of open; seen may be nil

	numbers string // the integers from 1 to %d, as n(i)
	random  string // 16 random characters
	hash    string // 32 bytes
	settle  string // runs after seeding
}

type closingStore interface {
	svc.Store
	Close() error
}

// pool returns connections that stay open. seen, unless nil, observes them.
func pool(connector driver.Connector, size int, seen *observer) *sql.DB {
	if seen != nil {
		connector = observedConnector{connector, seen}
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

var sqliteEngine = engine{
	name:    "sqlite",
	dialect: sqlite.Dialect(),
	check:   func() error { return nil },
	place:   func(name string) (string, error) { return filepath.Join(scratch, name+".db"), nil },
	open: func(path string) (closingStore, error) {
		return sqlite.Open(context.Background(), path, sqlite.Options{})
	},
	connect: func(path string, seen *observer) (write, read *sql.DB) {
		file := (&url.URL{Scheme: "file", Path: path}).String() + "?_pragma=busy_timeout(5000)"
		const durable = "&_txlock=immediate&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"
		return pool(fileConnector(file+durable), 1, seen), pool(fileConnector(file+"&_pragma=query_only(1)"), max(2, runtime.NumCPU()), seen)
	},
	numbers: `(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) n`,
	random:  `lower(hex(randomblob(8)))`,
	hash:    `randomblob(32)`,
	settle:  `PRAGMA wal_checkpoint(TRUNCATE)`,
}

// fileConnector connects to a SQLite file, given the driver's name for it.
type fileConnector string

func (c fileConnector) Connect(context.Context) (driver.Conn, error) {
	return c.Driver().Open(string(c))
}

func (c fileConnector) Driver() driver.Driver { return &modernc.Driver{} }

var postgresEngine = engine{
	name:    "postgres",
	dialect: postgres.Dialect(),
	check: func() error {
		if err := inPostgres("SELECT 1"); err != nil {
			return fmt.Errorf("there is no PostgreSQL at SVC_TEST_POSTGRES, or at the usual local address: %w", err)
		}
		return nil
	},
	place: newSchema,
	open: func(address string) (closingStore, error) {
		return postgres.Open(context.Background(), address, postgres.Options{})
	},
	connect: func(address string, seen *observer) (write, read *sql.DB) {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			panic(err) // open accepted it
		}
		db := pool(stdlib.GetConnector(*config), 10, seen)
		return db, db
	},
	numbers: `generate_series(1, %d) AS n(i)`,
	random:  `substr(md5(random()::text), 1, 16)`,
	hash:    `sha256(n.i::text::bytea)`,
	settle:  `ANALYZE`,
}

func engineOf(name string) engine {
	if name == postgresEngine.name {
		return postgresEngine
	}
	return sqliteEngine
}

func postgresAddress() string {
	if address := os.Getenv("SVC_TEST_POSTGRES"); address != "" {
		return address
	}
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

func inPostgres(statement string) (err error) {
	db, err := sql.Open("pgx", postgresAddress())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.Exec(statement)
	return err
}

// schemas are the schemas to drop at the end.
var schemas []string

// newSchema makes a schema and returns an address that leads into it.
func newSchema(name string) (string, error) {
	schema := fmt.Sprintf("svc_bench_%d_%s", os.Getpid(), name)
	address, err := url.Parse(postgresAddress())
	if err != nil {
		return "", err
	}
	query := address.Query()
	query.Set("search_path", schema)
	address.RawQuery = query.Encode()
	if err := inPostgres("CREATE SCHEMA " + schema); err != nil {
		return "", err
	}
	schemas = append(schemas, schema)
	return address.String(), nil
}
