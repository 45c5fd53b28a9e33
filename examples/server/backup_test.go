package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// commands returns a block of docs/howto/backup.md.
func commands(t *testing.T, name string) string {
	t.Helper()
	return programtest.Block(t, "../../docs/howto/backup.md", "<!-- commands: "+name+" -->\n```sh")
}

// TestDocumentedBackups runs the commands of the documentation unchanged: the backup twice, and the
// restore over a database that has changed since.
func TestDocumentedBackups(t *testing.T) {
	longtest.Parallel(t, "the commands of the documentation")
	for name, programs := range map[string][]string{"SQLite": {"sqlite3"}, "PostgreSQL": {"pg_dump", "psql"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programtest.NeedPostgres(t, "the commands of docs/howto/backup.md", programs...)
			backup, restore := commands(t, "backup of "+name), commands(t, "restore of "+name)
			testBackup(t, name, backup, restore)
		})
	}
}

func testBackup(t *testing.T, kind, backup, restore string) {
	is, dir := is.New(t), t.TempDir()
	flags, env := []string{"-db", filepath.Join(dir, "svc.db")}, ""
	if kind == "PostgreSQL" {
		flags = []string{"-db", pgtest.Database(t), "-keys", filepath.Join(dir, "svc.keys")}
		env = "DATABASE=" + flags[1]
	}
	first := startServer(t, flags...)
	key := first.key()
	create := func(s *running, id string) {
		t.Helper()
		s.wants(t, 200, key, "POST", "/ext/svc/admin/templates", `{"id": "`+id+`", "name": "n", "manifest": {"version": "1"}}`)
	}
	programtest.Shell(t, dir, backup, env)
	create(first, "before")
	programtest.Shell(t, dir, backup, env)
	create(first, "after")
	is.NoErr(first.stop(t))
	for _, file := range []string{"backup.new", "svc.db.keys", "svc.keys"} { // the secrets are lost as well
		_ = os.Remove(filepath.Join(dir, file))
	}

	programtest.Shell(t, dir, restore, env)
	second := startServer(t, flags...)
	is.True(!strings.Contains(second.stderr.String(), "level=WARN"))
	_, list := second.get(t, key, "/ext/svc/admin/templates")
	is.True(strings.Contains(list, `"id":"before"`) && !strings.Contains(list, `"id":"after"`))
	create(second, "after")
	is.NoErr(second.stop(t))
	programtest.Shell(t, dir, restore, env)
	for _, file := range []string{"backup.db", "backup.sql", "backup.keys"} {
		if info, err := os.Stat(filepath.Join(dir, file)); err == nil {
			is.Equal(info.Mode().Perm()&0o077, os.FileMode(0))
		}
	}
}

// A running server makes whole backups at intervals, removes the oldest of them and no other file.
// Names from the future neither count nor go. The drafts of a backup that was killed go.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, flags []string) {
		is, folder := parallel(t), filepath.Join(t.TempDir(), "kept")
		is.NoErr(os.Mkdir(folder, 0o700))
		const old = "svc-20200101T000000.000Z.backup"
		const future = "svc-20990101T000000.000Z.backup"
		for _, name := range []string{old, future, "mine.backup", "svc-2020.backup"} {
			is.NoErr(os.WriteFile(filepath.Join(folder, name), nil, 0o600))
		}
		goesOn, remove, err := makeDrafts(filepath.Join(folder, old))
		is.NoErr(err)
		defer remove()
		killed := filepath.Join(folder, draftsPrefix+"1")
		is.NoErr(os.Mkdir(killed, 0o700))
		is.NoErr(os.WriteFile(filepath.Join(killed, databaseName), nil, 0o600))
		s := startServer(t, append(flags, "-backup-dir", folder, "-backup-every", "1s", "-backup-keep", "1")...)
		is.True(soon(func() bool { return strings.Count(s.stderr.String(), "made the scheduled backup") >= 4 }))
		is.NoErr(s.stop(t))
		made := must(scheduled(folder))
		is.Equal(len(made), 2)
		is.Equal(made[1], future)
		wantFiles(t, folder, append([]string{".svc-database", filepath.Base(goesOn), "mine.backup", "svc-2020.backup"}, made...)...)
		restored := newDB(t)
		does(t, "restore", "-db", restored, filepath.Join(folder, made[0]))
		other := startServer(t, "-db", newDB(t), "-backup-dir", folder)
		is.True(soon(func() bool { return strings.Contains(other.stderr.String(), "has the backups of another database") }))
		is.Equal(must(scheduled(folder)), made)
		is.Equal(does(t, "export", "-db", restored), does(t, "export", "-db", flags[1]))
	})
}

// The first backup comes when the newest is old enough: a restart makes none.
func TestUntilBackup(t *testing.T) {
	is := is.New(t)
	c := &call{config: defaults()}
	c.Backup.Dir = filepath.Join(t.TempDir(), "made")
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	is.Equal(must(c.untilBackup(now)), time.Duration(0))
	for _, name := range []string{"svc-20261126T200000.000Z.backup", "svc-20990101T000000.000Z.backup"} {
		is.NoErr(os.WriteFile(filepath.Join(c.Backup.Dir, name), nil, 0o600))
	}
	is.Equal(must(c.untilBackup(now)), 8*time.Hour)
}

// A backup that fails is logged and tried again, and the server goes on.
func TestScheduledBackupThatFails(t *testing.T) {
	is := parallel(t)
	file := writeFile(t, "file", "")
	s := startServer(t, "-db", newDB(t), "-backup-dir", file, "-backup-every", "1s")
	is.True(soon(func() bool {
		return strings.Count(s.stderr.String(), "cannot make the scheduled backup, will retry") > 1
	}))
	status, _ := s.get(t, "", "/healthz")
	is.Equal(status, 204)
	is.NoErr(s.stop(t))
}
