package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// usedDB is a database and its keys file after a server has worked with it.
type usedDB struct {
	db, keys string
	key      string            // of the administrator
	answers  map[string]string // what it answers
}

// use runs a server on a new database, with a key, a template and a source with a token.
func use(t *testing.T, db string) usedDB {
	t.Helper()
	u := usedDB{db: db, keys: filepath.Join(t.TempDir(), "svc.keys"), answers: map[string]string{}}
	server := startServer(t, "-db", u.db, "-keys", u.keys)
	u.key = server.key()
	for path, body := range map[string]string{
		"/ext/svc/admin/templates":        `{"id": "a", "name": "A\u00e9", "manifest": {"version": "1", "n": 1.0}}`,
		"/ext/svc/admin/template-sources": `{"url": "` + server.base + `/catalogue", "alias": "own", "auth_token": "token"}`,
		"/ext/svc/users/alice/api-keys":   `{"description": null}`,
	} {
		if status, answer := server.ask(t, u.key, "POST", path, body); status >= 300 {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	for _, path := range everything {
		_, u.answers[path] = server.get(t, u.key, path)
	}
	is.New(t).NoErr(server.stop(t))
	return u
}

// check runs a server on a copy: it must accept the same key, answer the same, open the token and
// have the records of events.
func (u usedDB) check(t *testing.T, db, keys string) {
	t.Helper()
	is := is.New(t)
	server := startServer(t, "-db", db, "-keys", keys)
	is.True(!strings.Contains(server.stderr.String(), "level=WARN"))
	is.Equal(server.key(), "")
	for _, path := range everything {
		answer := server.wants(t, 200, u.key, "GET", path, "")
		is.Equal(answer, u.answers[path])
	}
	is.NoErr(server.stop(t))

	c := defaults()
	c.DB, c.Keys = db, keys
	h := must(openHost(t.Context(), c, "http://127.0.0.1:1", slog.New(slog.DiscardHandler)))
	defer h.close()
	sealed := must(h.service.Sources.Reseal(t.Context(), svc.Host)) // every token opens
	is.Equal(sealed, 0)
	report := must(h.service.Audit.Verify(t.Context(), svc.Host))
	is.Equal(report.Fault, nil)
	is.True(report.Newest.Number > 2)
}

func TestCopyRefuses(t *testing.T) {
	t.Parallel()
	place := newDB
	if longtest.InCI() {
		place = places["PostgreSQL"]
	}
	u, other := use(t, newDB(t)), use(t, place(t))
	none, folder := newDB(t), t.TempDir()
	link, damaged := filepath.Join(folder, "link"), writeFile(t, "damaged.db", strings.Repeat("x", 5000))
	foreign, old := newDB(t), newDB(t)
	execute(t, foreign, "CREATE TABLE notes (text TEXT)")
	execute(t, old, "CREATE TABLE svc_migrations (version BIGINT); INSERT INTO svc_migrations VALUES (-1)")
	newer := filepath.Join(folder, "newer.db")
	does(t, "copy", "-from", u.db, "-to", newer)
	execute(t, newer, "INSERT INTO svc_migrations VALUES (1000)")
	is.New(t).NoErr(os.Symlink(u.db, link))
	const down = "postgres://u:Hunter2Secret@127.0.0.1:1/svc?sslmode=disable"
	type pair struct{ from, to, want string }
	pairs := []pair{
		{none, newDB(t), "no such file"},
		{u.db, u.db, "the same file"},
		{u.db, link, "the same file"},
		{link, u.db, "the same file"},
		{u.db, other.db, "the target is not empty"},
		{other.db, u.db, "the target is not empty"},
		{u.db, newer, "version 1000"},
		{newer, newDB(t), "version 1000"},
		{damaged, newDB(t), "not a database"},
		{u.db, damaged, "not a database"},
		{foreign, newDB(t), "no tables of svc"},
		{u.db, filepath.Join(folder, "no", "such", "folder.db"), "no such file"},
		{u.db, folder, "not a regular file"},
		{folder, newDB(t), "not a regular file"},
		{u.db, down, "refused"},
		{down, newDB(t), "refused"},
	}
	if isPostgres(other.db) {
		pairs = append(pairs, pair{pgtest.Schema(t), newDB(t), "no tables of svc"},
			pair{other.db, other.db, "the same database"},
			pair{other.db, strings.Replace(other.db, "127.0.0.1", "localhost", 1), "the same database"})
	}
	for _, c := range pairs {
		before := contents(t, c.to)
		fails(t, c.want, "copy", "-from", c.from, "-to", c.to)
		expect.Equal(t, c.want, contents(t, c.to), before)
	}
	u.check(t, u.db, u.keys)
	other.check(t, other.db, other.keys)
}

// contents returns the rows of each table of a database, or what else is there.
func contents(t *testing.T, db string) string {
	t.Helper()
	if !isPostgres(db) {
		if info, err := os.Stat(db); err != nil || !info.Mode().IsRegular() {
			return fmt.Sprint(err != nil)
		}
	}
	driver, list := "sqlite", `SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`
	if isPostgres(db) {
		driver, list = "pgx", `SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1`
	}
	opened := must(sql.Open(driver, db))
	defer opened.Close()
	rows, err := opened.Query(list)
	if err != nil {
		return err.Error()
	}
	var names []string
	for rows.Next() {
		var name string
		is.New(t).NoErr(rows.Scan(&name))
		names = append(names, name)
	}
	var b strings.Builder
	for _, name := range names {
		if name == "svc_changefeed" || name == "svc_generation" { // not copied; of the other, the sum is
			continue
		}
		var n int
		condition := ""
		if name == "svc_kept_values" {
			condition = " WHERE name <> 'channel'"
		}
		is.New(t).NoErr(opened.QueryRow(`SELECT COUNT(*) FROM ` + name + condition).Scan(&n))
		fmt.Fprintln(&b, name, n)
	}
	var generation int
	_ = opened.QueryRow(`SELECT CAST(SUM(value) AS BIGINT) FROM svc_generation`).Scan(&generation) // a foreign database has none
	return b.String() + fmt.Sprint(generation)
}

// isNew reports whether contents are those of a database that was never written to.
func isNew(contents string) bool {
	for line := range strings.Lines(contents) {
		name, rows, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "svc_generation", "svc_locks", "svc_migrations", "true":
		default:
			if rows != "0" && line != "0" {
				return false
			}
		}
	}
	return true
}

func execute(t *testing.T, db, script string) {
	opened := must(sql.Open(map[bool]string{true: "pgx", false: "sqlite"}[isPostgres(db)], db))
	defer opened.Close()
	must(opened.Exec(script))
}

// large adds rows, so that a command takes a while.
func large(t *testing.T, db string) {
	t.Helper()
	series := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) `
	execute(t, db, `INSERT INTO svc_policies (id, display_name, document) `+series+
		`SELECT 'policy ' || CAST(i AS TEXT), 'p', '{}' FROM n`)
}

// killings is how often a test kills a command.
const killings = 5

// killed runs a command as a process and kills it at a random moment. It returns false when the command was faster.
func killed(t *testing.T, longest time.Duration, args ...string) bool {
	t.Helper()
	cmd := command(t, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	is.New(t).NoErr(cmd.Start())
	kill := time.AfterFunc(rand.N(longest), func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if kill.Stop() && err != nil {
		t.Fatalf("%s: %v: %s", args, err, &said)
	}
	return err != nil
}

// timed runs a command as a process and returns how long it took.
func timed(t *testing.T, args ...string) time.Duration {
	t.Helper()
	began := time.Now()
	if out, err := command(t, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
	return time.Since(began)
}

// Nothing is shown in the first second. After that, a terminal has a bar, and a file has lines.
func TestProgress(t *testing.T) {
	is := is.New(t)
	now := time.Now()
	show := func(terminal, lines bool, begun time.Time) string {
		var out output
		p := newProgress(&out, "copy")
		p.terminal, p.lines, p.begun, p.now = terminal, lines, begun, func() time.Time { return now }
		p.report(0, 1000)
		p.report(500, 1000) // too soon after the one before
		p.report(1000, 1000)
		p.end()
		return out.String()
	}
	earlier := now.Add(-time.Minute)
	is.Equal(show(true, true, now), "")
	is.Equal(show(false, true, now), "")
	is.Equal(show(false, false, earlier), "")
	is.Equal(show(false, true, earlier), "copy: 0 of 1000 rows\ncopy: 1000 of 1000 rows\n")
	bar := func(full int) string {
		return "[" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
	}
	is.Equal(show(true, true, earlier),
		"\rcopy: "+bar(0)+"   0 %, 0 of 1000 rows\rcopy: "+bar(barWidth)+" 100 %, 1000 of 1000 rows\n")
	is.True(!newProgress(io.Discard, "copy").terminal)
}

// The bar of a command without a total moves after a second, and leaves nothing behind.
func TestBusy(t *testing.T) {
	is := is.New(t)
	var out output
	begun := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	now := begun
	p := newProgress(&out, "lint")
	p.terminal, p.begun, p.now = true, begun, func() time.Time { return now }
	p.turn()
	p.clear()
	is.Equal(out.String(), "")
	bar := func(at int) string {
		return "[" + strings.Repeat(" ", at) + strings.Repeat("=", barWidth/5) + strings.Repeat(" ", barWidth-barWidth/5-at) + "]"
	}
	now = begun.Add(time.Second)
	p.turn()
	now = begun.Add(2500 * time.Millisecond)
	p.turn()
	p.clear()
	p.clear()
	is.Equal(out.String(), "\rlint: "+bar(10)+" 1 s\rlint: "+bar(1)+" 2 s\r\x1b[K")
}

func TestBusyWithoutTerminal(t *testing.T) {
	is := is.New(t)
	var out output
	is.NoErr((&call{stderr: &out}).busy("lint", func() error { return nil }))
	is.Equal(out.String(), "")
}
