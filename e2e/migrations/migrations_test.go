// Package migrations_test is a module of its own, so that no other test compiles the tools.
package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	atlas "ariga.io/atlas/sql/migrate"
	atlaspostgres "ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	atlassqlite "ariga.io/atlas/sql/sqlite"
	"ariga.io/atlas/sql/sqltool"
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
	atlas   func(schema.ExecQuerier) (atlas.Driver, error)
	revisions
}

func sites(t *testing.T) map[string]func(t *testing.T) site {
	return map[string]func(t *testing.T) site{
		"sqlite": func(t *testing.T) site {
			path := filepath.Join(t.TempDir(), "svc.db")
			db := must(sql.Open("sqlite", path))
			t.Cleanup(func() { db.Close() })
			return site{
				db: db, dialect: sqlite.Dialect(), goose: goose.DialectSQLite3, atlas: atlassqlite.Open, revisions: revisions{},
				open: func() (svc.Store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) },
				driver: func() (database.Driver, error) {
					return migratesqlite.WithInstance(db, &migratesqlite.Config{MigrationsTable: table})
				},
			}
		},
		"postgres": func(t *testing.T) site {
			url := pgtest.Database(t) // atlas reads all schemas, and those of other tests come and go
			db := pgtest.Open(t, url)
			return site{
				db: db, dialect: postgres.Dialect(), goose: goose.DialectPostgres, atlas: atlaspostgres.Open, revisions: revisions{},
				open: func() (svc.Store, error) { return postgres.Open(t.Context(), url, postgres.Options{Timeout: -1}) },
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
	"atlas": func(t *testing.T, s site, files fs.FS) (int, error) {
		folder := filepath.Join(t.TempDir(), "svc-migrations")
		if err := os.CopyFS(folder, files); err != nil {
			return 0, err
		}
		dir := must(sqltool.NewGolangMigrateDir(folder))
		if err := atlas.WriteSumFile(dir, must(dir.Checksum())); err != nil { // atlas migrate hash
			return 0, err
		}
		executor, err := atlas.NewExecutor(must(s.atlas(s.db)), dir, s.revisions, atlas.WithAllowDirty(true))
		if err != nil {
			return 0, err
		}
		pending, err := executor.Pending(t.Context())
		if errors.Is(err, atlas.ErrNoPendingFiles) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		return len(pending), executor.ExecuteN(t.Context(), 0)
	},
}

// revisions are what atlas has run. Its command keeps them in a table.
type revisions map[string]*atlas.Revision

func (r revisions) Ident() *atlas.TableIdent { return &atlas.TableIdent{Name: table} }

func (r revisions) ReadRevisions(context.Context) ([]*atlas.Revision, error) {
	return slices.SortedFunc(maps.Values(r), func(a, b *atlas.Revision) int {
		return strings.Compare(a.Version, b.Version)
	}), nil
}

func (r revisions) ReadRevision(_ context.Context, version string) (*atlas.Revision, error) {
	if r[version] == nil {
		return nil, atlas.ErrRevisionNotExist
	}
	return r[version], nil
}

func (r revisions) WriteRevision(_ context.Context, revision *atlas.Revision) error {
	r[revision.Version] = revision
	return nil
}

func (r revisions) DeleteRevision(_ context.Context, version string) error {
	delete(r, version)
	return nil
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
				must(service.Users.Create(t.Context(), svc.Host, svc.User{ID: "alice"}))
			})
		}
	}
}
