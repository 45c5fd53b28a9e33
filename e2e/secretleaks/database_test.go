//go:build unix

package secretleaks

import (
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

type database interface {
	open() svc.FullStore
	close() // a second call does nothing
	db() (*sql.DB, sqlstore.Dialect)
	settle() // writes everything to its final place
	// running adds the database's files while it is open. holdRows names the places that hold rows then.
	running(e *evidence)
	holdRows() (places []string)
	// stopped adds the files that remain after close. For PostgreSQL it stops the server.
	stopped(e *evidence)
	keepRows() (places []string)
}

func databases(t *testing.T, test func(t *testing.T, db database)) {
	t.Run("SQLite", func(t *testing.T) { test(t, &file{t: t, path: filepath.Join(t.TempDir(), "svc.db")}) })
	t.Run("PostgreSQL", func(t *testing.T) {
		longtest.Test(t, "the files of a PostgreSQL server")
		test(t, &cluster{t: t, server: pgtest.Start(t, "log_statement=all")})
	})
}

type file struct {
	t     *testing.T
	path  string
	store *sqlite.Store
}

func (f *file) open() svc.FullStore {
	f.store = must(sqlite.Open(f.t.Context(), f.path, sqlite.Options{}))
	return f.store
}

func (f *file) close() {
	if f.store != nil {
		must(0, f.store.Close())
	}
	f.store = nil
}

func (f *file) db() (*sql.DB, sqlstore.Dialect) { return f.store.DB(), sqlite.Dialect() }

func (f *file) settle() { execute(f.t, f.store.DB(), `PRAGMA wal_checkpoint(PASSIVE)`) }

// running reads the files in another process: this process would lose SQLite's locks.
func (f *file) running(e *evidence) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		e.add("svc.db"+suffix+", open", must(exec.Command("cat", f.path+suffix).Output()))
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
	c.store = must(postgres.Open(c.t.Context(), c.server.URL, postgres.Options{Timeout: -1}))
	return c.store
}

func (c *cluster) close() {
	if c.store != nil {
		must(0, c.store.Close())
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

// upstream is a source that offers the template "chat", or answers with a test's handler.
type upstream struct {
	*httptest.Server
	mu             sync.Mutex
	handler        func(w http.ResponseWriter, bearer string)
	authorizations []string
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(u)
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	authorization := r.Header.Get("Authorization")
	u.mu.Lock()
	u.authorizations = append(u.authorizations, authorization)
	handler := u.handler
	u.mu.Unlock()
	if handler == nil {
		handler = text(200, `{"templates": [{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}]}`)
	}
	handler(w, strings.TrimPrefix(authorization, "Bearer "))
}

// with sets the handler of all later answers; nil restores the regular answers.
func (u *upstream) with(handler func(w http.ResponseWriter, bearer string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.handler = handler
}

// saw reports whether a request had that Authorization header.
func (u *upstream) saw(authorization string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Contains(u.authorizations, authorization)
}

// echoing holds bad answers of sources, by name. They contain the request's bearer: TOKEN.
var echoing = map[string]func(w http.ResponseWriter, bearer string){
	"an error":               text(500, `{"error": "TOKEN"}`),
	"a refusal":              text(401, `TOKEN`),
	"no JSON":                text(200, `TOKEN`),
	"JSON that breaks off":   text(200, `{"templates": ["TOKEN`),
	"a duplicate key":        text(200, `{"TOKEN": 1, "TOKEN": 2}`),
	"a duplicate key inside": text(200, `{"templates": [{"id": "chat", "name": "n", "manifest": {"version": "1", "a": {"TOKEN": 1, "TOKEN": 2}}}]}`),
	"a bad file":             text(200, `{"templates": [{"id": "chat", "name": "n", "manifest_file": "../TOKEN"}]}`),
	"a file that is no JSON": text(200, `{"templates": [{"id": "chat", "name": "n", "manifest_file": "TOKEN"}]}`+"TOKEN"),
	"a bad entry":            text(200, `{"templates": [{"id": "chat", "name": "TOKEN", "category": ["TOKEN"], "manifest": {}}]}`),
	"a bad manifest":         text(200, `{"templates": [{"id": "chat", "name": "n", "manifest": {"version": {"TOKEN": "TOKEN"}}}]}`),
	"a redirect":             redirect("https://127.0.0.1:1/TOKEN?t=TOKEN"),
	"a malformed redirect":   redirect("http://%zz/TOKEN"),
	"a redirect with a user": redirect("http://TOKEN:TOKEN@example.com/"),
	"a redirect in a circle": redirect("/acme/templates.json?t=TOKEN"),
	"no HTTP":                wire("TOKEN TOKEN\r\n"),
	"no status":              wire("HTTP/1.1 TOKEN\r\n\r\n"),
	"a bad header":           wire("HTTP/1.1 200 OK\r\nTOKEN\r\n\r\n"),
	"a bad length":           wire("HTTP/1.1 200 OK\r\nContent-Length: TOKEN\r\n\r\n"),
	"a bad transfer":         wire("HTTP/1.1 200 OK\r\nTransfer-Encoding: TOKEN\r\n\r\n"),
	"a bad chunk":            wire("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nTOKEN\r\n"),
	"a bad encoding":         wire("HTTP/1.1 200 OK\r\nContent-Encoding: TOKEN\r\nContent-Length: 2\r\n\r\n{}"),
	"a bad type":             wire("HTTP/1.1 200 OK\r\nContent-Type: TOKEN\r\nContent-Length: 32\r\n\r\nTOKEN"),
}

func text(status int, body string) func(w http.ResponseWriter, bearer string) {
	return func(w http.ResponseWriter, bearer string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "TOKEN", bearer))
	}
}

func redirect(to string) func(w http.ResponseWriter, bearer string) {
	return func(w http.ResponseWriter, bearer string) {
		w.Header().Set("Location", strings.ReplaceAll(to, "TOKEN", bearer))
		w.WriteHeader(http.StatusFound)
	}
}

// wire answers with bytes that need not be HTTP.
func wire(answer string) func(w http.ResponseWriter, bearer string) {
	return func(w http.ResponseWriter, bearer string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "TOKEN", bearer))
	}
}
