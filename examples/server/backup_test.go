package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/store/postgres/pgtest"
)

// commands returns a block of docs/operations.md.
func commands(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "<!-- commands: "+name+" -->\n```sh\n")
	inside, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("no block %q", name)
	}
	return inside
}

// TestDocumentedBackups runs the commands of the documentation unchanged: the backup twice, and the
// restore over a database that has changed since.
func TestDocumentedBackups(t *testing.T) {
	for name, c := range map[string]struct {
		programs []string
		flags    func(t *testing.T) []string
	}{
		"SQLite":     {[]string{"sqlite3"}, func(*testing.T) []string { return nil }},
		"PostgreSQL": {[]string{"pg_dump", "psql"}, func(t *testing.T) []string { return []string{"-db", pgtest.Start(t).URL} }},
	} {
		t.Run(name, func(t *testing.T) {
			if bin, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
				t.Setenv("PATH", os.Getenv("PATH")+":"+strings.TrimSpace(string(bin)))
			}
			for _, program := range c.programs {
				if _, err := exec.LookPath(program); err != nil {
					missing(t, program+" is missing: the commands of docs/operations.md")
				}
			}
			backup, restore := commands(t, "backup of "+name), commands(t, "restore of "+name)
			testBackup(t, backup, restore, c.flags(t)...)
		})
	}
}

func testBackup(t *testing.T, backup, restore string, flags ...string) {
	is := is.New(t)
	t.Chdir(t.TempDir())
	if flags != nil {
		t.Setenv("DATABASE", flags[1])
	}
	shell := func(commands string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", commands, err, out)
		}
	}
	first := startServer(t, flags...)
	key := first.key()
	create := func(s *running, id string) {
		t.Helper()
		s.wants(t, 200, key, "POST", "/ext/svc/admin/templates", `{"id": "`+id+`", "name": "n", "manifest": {"version": "1"}}`)
	}
	shell(backup)
	create(first, "before")
	shell(backup)
	create(first, "after")
	is.NoErr(first.stop(t))
	for _, file := range []string{"backup.new", "svc.db.keys", "svc.keys"} { // the secrets are lost as well
		_ = os.Remove(file)
	}

	shell(restore)
	second := startServer(t, flags...)
	is.True(!strings.Contains(second.stderr.String(), "level=WARN"))
	_, list := second.get(t, key, "/ext/svc/admin/templates")
	is.True(strings.Contains(list, `"id":"before"`) && !strings.Contains(list, `"id":"after"`))
	create(second, "after")
	is.NoErr(second.stop(t))
	shell(restore)
	for _, file := range []string{"backup.db", "backup.sql", "backup.keys"} {
		if info, err := os.Stat(file); err == nil {
			is.Equal(info.Mode().Perm()&0o077, os.FileMode(0))
		}
	}
}
