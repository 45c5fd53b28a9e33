package upgrade

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

var (
	filledFrom = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) // each request of fill.txt is a second later
	askedAt    = time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC) // the time of all requests of requests.txt
)

// webAddress is where the source "web" listens while a database is filled. Afterwards nothing
// listens there, so its catalogue is the stored copy.
const webAddress = "127.83.86.67:47831"

var catalogues = []string{
	`{"serial": 4, "templates": [
		{"id": "chat", "name": "Chat", "description": "Talks", "category": "support", "tags": ["a"], "manifest": {"version": "1", "n": 1.0}},
		{"id": "note", "name": "Note", "manifest": {"version": "1"}}]}`,
	`{"serial": 5, "templates": [
		{"id": "chat", "name": "Chat 2", "description": "Talks", "category": "support", "tags": ["a", "c"], "manifest": {"version": "2", "n": 1.0}},
		{"id": "note", "name": "Note", "manifest": {"version": "1"}}]}`,
}

// site is a Service over a kept database, or over one to keep.
type site struct {
	t       *testing.T
	clock   atomic.Pointer[time.Time]
	events  chan svc.Event
	files   fstest.MapFS // of sources
	market  *marketplace.Client
	store   database
	service *svc.Service
	url     string
	stop    func() error
	vars    map[string]string // the keys by name, and what the last answer had
}

func newSite(t *testing.T) *site {
	s := &site{t: t, files: fstest.MapFS{}, vars: map[string]string{}, events: make(chan svc.Event, 100)}
	s.at(askedAt)
	s.offer(catalogues[1])
	s.market = must(marketplace.New(marketplace.Config{
		AllowOrigins: []string{"http://" + webAddress}, AllowPersonal: true, Files: map[string]fs.FS{"acme": s.files},
	}))
	t.Cleanup(s.market.CloseIdleConnections)
	return s
}

func (s *site) at(now time.Time) { s.clock.Store(&now) }

// signingKey signs the catalogues.
var signingKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func (s *site) offer(catalogue string) {
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(signingKey, []byte(catalogue)))
	s.files["templates.json"] = &fstest.MapFile{Data: []byte(catalogue), ModTime: filledFrom}
	s.files["templates.json.sig"] = &fstest.MapFile{Data: []byte(signature), ModTime: filledFrom}
}

func (s *site) config(store svc.Store, peppers ...svc.Pepper) svc.Config {
	return svc.Config{
		Store: store, Now: func() time.Time { return *s.clock.Load() },
		Keys:    svc.KeyConfig{Peppers: peppers, Imports: []svc.KeyImport{{Prefix: "old_"}}},
		Sources: svc.SourceConfig{Marketplace: s.market, SealingKey: make([]byte, 32)},
		Events:  svc.EventConfig{Keep: true},
		Logger:  slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
}

// peppers are those of kept databases. Keys without a pepper came before the first.
var peppers = []svc.Pepper{{Version: "1", Secret: []byte("the pepper of kept keys")}, {}}

// serve serves a store until stop, which closes it.
func (s *site) serve(store database, change func(*svc.Config)) {
	s.t.Helper()
	config := s.config(store, peppers...)
	if change != nil {
		change(&config)
	}
	service := must(svc.New(config))
	server := httptest.NewServer(httpapi.New(service, httpapi.Options{}).Mount(http.NewServeMux()))
	stopped := false
	s.store, s.service, s.url = store, service, server.URL+httpapi.DefaultPrefix
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		server.Close()
		return errors.Join(service.Close(), store.Close())
	}
	s.t.Cleanup(func() { check(s.stop()) })
}

func (s *site) deliver(_ context.Context, event svc.Event) { s.events <- event }

var headers = regexp.MustCompile(`^[A-Z][A-Za-z-]+:[^ ]+`)

// ask sends "CALLER METHOD TARGET [Name:value …] [BODY]". CALLER is the name of a key, - for nobody.
func (s *site) ask(request string) (e exchange) {
	s.t.Helper()
	words := append(strings.SplitN(request, " ", 4), "")
	body, header := words[3], http.Header{}
	for found := headers.FindString(body); found != ""; found = headers.FindString(body) {
		name, value, _ := strings.Cut(found, ":")
		header.Set(name, value)
		body = strings.TrimPrefix(body[len(found):], " ")
	}
	r := must(http.NewRequestWithContext(s.t.Context(), words[1], s.url+words[2], strings.NewReader(body)))
	r.Header = header
	if body != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	if words[0] != "-" {
		if s.vars[words[0]] == "" {
			s.t.Fatalf("%s: there is no key of that name", request)
		}
		header.Set("Authorization", "Bearer "+s.vars[words[0]])
	}
	response := must(http.DefaultClient.Do(r))
	defer response.Body.Close()
	e, err := newExchange(request, response, must(io.ReadAll(response.Body)))
	if err != nil {
		s.t.Fatalf("%s: %v", request, err)
	}
	s.remember(e)
	return e
}

// remember gives their values to $next and $etag.
func (s *site) remember(e exchange) {
	s.vars["etag"] = e.headers["ETag"]
	target, _, _ := strings.Cut(strings.TrimPrefix(e.headers["Link"], "<"), ">")
	if link, err := url.Parse(target); err == nil {
		s.vars["next"] = link.Query().Get("cursor")
	}
}

// lines returns the lines of a script, without comments.
func lines(path string) []string {
	all := strings.Split(string(must(os.ReadFile(path))), "\n")
	return slices.DeleteFunc(all, func(line string) bool { return line == "" || line[0] == '#' })
}

// expand puts in the values of variables.
func (s *site) expand(line string) string {
	return os.Expand(line, func(name string) string {
		value, known := s.vars[name]
		if !known {
			s.t.Fatalf("%s: $%s has no value", line, name)
		}
		return value
	})
}

func (s *site) keys() map[string]string {
	keys := maps.Clone(s.vars)
	maps.DeleteFunc(keys, func(name, _ string) bool {
		return slices.Contains([]string{"web", "signer", "next", "etag"}, name) || strings.HasSuffix(name, "_id")
	})
	return keys
}

func (s *site) record(script string) (r record) {
	s.t.Helper()
	for _, line := range lines(script) {
		r.exchanges = append(r.exchanges, s.ask(s.expand(line)))
	}
	r.keys = s.keys()
	return r
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

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
		check(zip.Close())
		write(filepath.Join(dir, "sqlite", filepath.Base(path)+".gz"), b.Bytes())
	}
}

func restoreFiles(_ *testing.T, dir, place string) {
	for _, path := range must(filepath.Glob(filepath.Join(dir, "sqlite", "*.gz"))) {
		file := must(os.Open(path))
		data := must(io.ReadAll(must(gzip.NewReader(file))))
		_ = file.Close() // it was read
		write(filepath.Join(place, strings.TrimSuffix(filepath.Base(path), ".gz")), data)
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
	write(filepath.Join(dir, "postgres.sql"), []byte(kept.String()))
}

// execute runs a dump, which sets the search path of its connection.
func execute(t *testing.T, dir, place string) {
	db := must(sql.Open("pgx", place))
	defer db.Close()
	db.SetMaxOpenConns(1)
	must(db.ExecContext(t.Context(), string(must(os.ReadFile(filepath.Join(dir, "postgres.sql"))))))
}

func write(path string, data []byte) {
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	check(os.WriteFile(path, data, 0o644))
}
