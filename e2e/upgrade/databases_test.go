package upgrade

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// database is a store of a kept database.
type database interface {
	svc.Store
	DB() *sql.DB
	Close() error
}

// tenants is the list of tenants of a kept database.
type tenants interface {
	svc.TenantStore
	Close() error
}

// kind is a kind of database. A place is a folder, or the address of a PostgreSQL database.
type kind struct {
	name    string
	dialect sqlstore.Dialect
	empty   *regexp.Regexp // columns without values: of locks, and of what only many writers need
	make    func(t *testing.T) (place string)
	open    func(ctx context.Context, place string) (database, error)
	tenants func(ctx context.Context, place string) (tenants, error)
	keep    func(t *testing.T, place, dir string) // writes files into dir
	restore func(t *testing.T, dir, place string)
}

var kinds = []kind{
	{
		name: "sqlite", dialect: sqlite.Dialect(),
		empty: regexp.MustCompile(`^svc_(access_lock|key_holders|tenant_lanes|audit_queue)\.`),
		make:  func(t *testing.T) string { return t.TempDir() },
		open: func(ctx context.Context, place string) (database, error) {
			return sqlite.Open(ctx, filepath.Join(place, "tenants.db"), sqlite.Options{})
		},
		tenants: func(ctx context.Context, place string) (tenants, error) {
			return sqlite.OpenTenants(ctx, place, sqlite.Options{})
		},
		keep: keepFiles, restore: restoreFiles,
	},
	{
		name: "postgres", dialect: postgres.Dialect(),
		empty: regexp.MustCompile(`^svc_(access_lock|key_holders)\.`),
		make:  func(t *testing.T) string { return pgtest.Database(t) },
		open: func(ctx context.Context, place string) (database, error) {
			return postgres.Open(ctx, place, postgres.Options{MaxOpen: pgtest.Connections, Timeout: -1})
		},
		tenants: func(ctx context.Context, place string) (tenants, error) {
			return postgres.OpenTenants(ctx, place, postgres.Options{Timeout: -1})
		},
		keep: dump, restore: execute,
	},
}

func keepFiles(t *testing.T, place, dir string) {
	t.Helper()
	for _, path := range must(filepath.Glob(filepath.Join(place, "*.db*"))) {
		if filepath.Ext(path) != ".db" {
			t.Fatalf("%s is not closed", path)
		}
		var b bytes.Buffer
		zip := must(gzip.NewWriterLevel(&b, gzip.BestCompression))
		must(zip.Write(must(os.ReadFile(path))))
		write(t, filepath.Join(dir, "sqlite", filepath.Base(path)+".gz"), flushed(zip, &b))
	}
}

func flushed(zip *gzip.Writer, b *bytes.Buffer) []byte {
	if err := zip.Close(); err != nil {
		panic(err) // it is in memory
	}
	return b.Bytes()
}

func restoreFiles(t *testing.T, dir, place string) {
	t.Helper()
	for _, path := range must(filepath.Glob(filepath.Join(dir, "sqlite", "*.gz"))) {
		file := must(os.Open(path))
		data := must(io.ReadAll(must(gzip.NewReader(file))))
		_ = file.Close() // it was read
		write(t, filepath.Join(place, strings.TrimSuffix(filepath.Base(path), ".gz")), data)
	}
}

// dump writes what pg_dump prints. It leaves out what only psql understands.
func dump(t *testing.T, place, dir string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "pg_dump", "--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=100", "--dbname", place)
	command.Stderr = t.Output()
	var kept strings.Builder
	for line := range strings.Lines(string(must(command.Output()))) {
		if !strings.HasPrefix(line, "--") && !strings.HasPrefix(line, `\`) && line != "\n" {
			kept.WriteString(line)
		}
	}
	write(t, filepath.Join(dir, "postgres.sql"), []byte(kept.String()))
}

// execute runs a dump, which sets the search path of its connection.
func execute(t *testing.T, dir, place string) {
	t.Helper()
	db := must(sql.Open("pgx", place))
	defer db.Close()
	db.SetMaxOpenConns(1)
	must(db.ExecContext(t.Context(), string(must(os.ReadFile(filepath.Join(dir, "postgres.sql"))))))
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	check(os.WriteFile(path, data, 0o644))
}
