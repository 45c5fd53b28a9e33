// Package migrations_test is a module of its own, so that no other test compiles the tools.
package migrations_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// table is where a tool keeps its versions of these files.
const table = "svc_files"

// site is a database that a tool migrates.
type site struct {
	db      *sql.DB
	dialect sqlstore.Dialect
	open    func() (svc.Store, error)
	goose   goose.Dialect
	driver  func() (database.Driver, error) // for golang-migrate
}

func sites(t *testing.T) map[string]func(t *testing.T) site {
	return map[string]func(t *testing.T) site{
		"sqlite": func(t *testing.T) site {
			path := filepath.Join(t.TempDir(), "svc.db")
			db := must(sql.Open("sqlite", path))
			t.Cleanup(func() { db.Close() })
			return site{
				db: db, dialect: sqlite.Dialect(), goose: goose.DialectSQLite3,
				open: func() (svc.Store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) },
				driver: func() (database.Driver, error) {
					return migratesqlite.WithInstance(db, &migratesqlite.Config{MigrationsTable: table})
				},
			}
		},
		"postgres": func(t *testing.T) site {
			url := pgtest.Schema(t)
			db := pgtest.Open(t, url)
			return site{
				db: db, dialect: postgres.Dialect(), goose: goose.DialectPostgres,
				open: func() (svc.Store, error) { return postgres.Open(t.Context(), url, postgres.Options{}) },
				driver: func() (database.Driver, error) {
					return migratepgx.WithInstance(db, &migratepgx.Config{MigrationsTable: table})
				},
			}
		},
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// tools run all files, and return how many they found to do (golang-migrate: 1 for any).
var tools = map[string]func(*testing.T, site, fs.FS) (int, error){
	"goose": func(t *testing.T, s site, files fs.FS) (int, error) {
		provider, err := goose.NewProvider(s.goose, s.db, files, goose.WithTableName(table))
		if err != nil {
			return 0, err
		}
		done, err := provider.Up(t.Context())
		return len(done), err
	},
	"golang-migrate": func(t *testing.T, s site, files fs.FS) (int, error) {
		source := must(iofs.New(files, "."))
		m, err := migrate.NewWithInstance("svc", source, "db", must(s.driver()))
		if err != nil {
			return 0, err
		}
		if err = m.Up(); errors.Is(err, migrate.ErrNoChange) {
			return 0, nil
		}
		return 1, err
	},
}

// Each tool runs the files once. The store then opens, and finds nothing to do.
func TestTools(t *testing.T) {
	for where, newSite := range sites(t) {
		for name, up := range tools {
			t.Run(name+" on "+where, func(t *testing.T) {
				s := newSite(t)
				files := sqlstore.Migrations(s.dialect)
				if n, err := up(t, s, files); err != nil || n == 0 {
					t.Fatal(n, err)
				}
				if n, err := up(t, s, files); err != nil || n != 0 {
					t.Fatalf("the second time %d files are run: %v", n, err)
				}
				if pending, err := sqlstore.Pending(t.Context(), s.db, s.dialect); err != nil || pending != "" {
					t.Fatalf("the store still needs %s: %v", pending, err)
				}
				store := must(s.open())
				service := must(svc.New(svc.Config{Store: store}))
				t.Cleanup(func() { service.Close() })
				if _, err := service.Users.Create(t.Context(), svc.Host, svc.User{ID: "alice"}); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
