//go:build unix

package secretleaks

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// database is the database of a site.
type database interface {
	open() svc.FullStore
	close() // a second call does nothing
	db() (*sql.DB, sqlstore.Dialect)
	settle() // writes everything to its final place
	// running adds the database's files while it is open. holdRows names the places that hold rows
	// then.
	running(e *evidence)
	holdRows() (places []string)
	// stopped adds the files that remain after close. For PostgreSQL it stops the server.
	stopped(e *evidence)
	keepRows() (places []string)
}

// databases runs a test over each kind of database.
func databases(t *testing.T, test func(t *testing.T, db database)) {
	t.Run("SQLite", func(t *testing.T) { test(t, &file{t: t, path: filepath.Join(t.TempDir(), "svc.db")}) })
	t.Run("PostgreSQL", func(t *testing.T) {
		longtest.Test(t, "the files of a PostgreSQL server")
		test(t, &cluster{t: t, server: pgtest.Start(t, "log_statement=all")})
	})
}

// file is a SQLite file.
type file struct {
	t     *testing.T
	path  string
	store *sqlite.Store
}

func (f *file) open() svc.FullStore {
	f.t.Helper()
	var err error
	if f.store, err = sqlite.Open(f.t.Context(), f.path, sqlite.Options{}); err != nil {
		f.t.Fatal(err)
	}
	return f.store
}

func (f *file) close() {
	if f.store == nil {
		return
	}
	if err := f.store.Close(); err != nil {
		f.t.Error(err)
	}
	f.store = nil
}

func (f *file) db() (*sql.DB, sqlstore.Dialect) { return f.store.DB(), sqlite.Dialect() }

func (f *file) settle() { execute(f.t, f.store.DB(), `PRAGMA wal_checkpoint(PASSIVE)`) }

// running reads the files in another process: this process would lose SQLite's locks.
func (f *file) running(e *evidence) {
	f.t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		text := must(exec.Command("cat", f.path+suffix).Output())
		e.add("svc.db"+suffix+", open", text)
	}
}

func (f *file) stopped(e *evidence) {
	f.t.Helper()
	e.files(f.t, filepath.Dir(f.path), func(string) string { return "files, closed" })
}

func (f *file) holdRows() []string { return []string{"svc.db, open", "svc.db-wal, open"} }
func (f *file) keepRows() []string { return []string{"files, closed"} }

// cluster is a separate PostgreSQL server, which logs every statement with its parameters.
type cluster struct {
	t      *testing.T
	server *pgtest.Cluster
	store  *postgres.Store
}

func (c *cluster) open() svc.FullStore {
	c.t.Helper()
	var err error
	if c.store, err = postgres.Open(c.t.Context(), c.server.URL, postgres.Options{Timeout: -1}); err != nil {
		c.t.Fatal(err)
	}
	return c.store
}

func (c *cluster) close() {
	if c.store == nil {
		return
	}
	if err := c.store.Close(); err != nil {
		c.t.Error(err)
	}
	c.store = nil
}

func (c *cluster) db() (*sql.DB, sqlstore.Dialect) { return c.store.DB(), postgres.Dialect() }

func (c *cluster) settle() { execute(c.t, c.store.DB(), `CHECKPOINT`) }

func (c *cluster) running(e *evidence) {
	c.t.Helper()
	e.add("pg_dump", c.server.Dump())
	e.add("the server's log", []byte(c.server.Log()))
	e.files(c.t, c.server.Path("pg_wal"), func(string) string { return "WAL segments" })
}

func (c *cluster) stopped(e *evidence) {
	c.t.Helper()
	c.server.Stop()
	e.files(c.t, c.server.Path("."), func(path string) string {
		top, _, _ := strings.Cut(path, "/")
		return "data/" + top + ", stopped"
	})
}

func (c *cluster) holdRows() []string { return []string{"WAL segments", "pg_dump", "the server's log"} }
func (c *cluster) keepRows() []string { return []string{"data/base, stopped", "data/pg_wal, stopped"} }

func execute(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	must(db.ExecContext(t.Context(), statement, args...))
}

// files adds all files below a directory. place gives the place of each path.
func (e *evidence) files(t *testing.T, dir string, place func(path string) string) {
	t.Helper()
	must(0, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a running server removes files
		} else if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		e.add(place(relative), text)
		return err
	}))
}
