package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

func TestOddPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, path := range []string{
		filepath.Join(dir, "a?b.db"), filepath.Join(dir, "a%20b#c.db"), filepath.Join(dir, "a b&c=d;e.db"), filepath.Join(dir, "?mode=memory"),
		filepath.Join(dir, "é\U0001f600'\".db"), "relative.db", "./dot.db", "file:x.db", "a+b.db", "//" + dir + "/double.db", "sub/../up.db",
	} {
		is := is.New(t)
		is.NoErr(os.MkdirAll("sub", 0o700))
		must(open(t, path).KeepValue(t.Context(), "name", []byte(path)))
		info := must(os.Stat(path)) // the file is where the path says
		is.True(info.Size() > 0)
		is.Equal(string(must(open(t, path).KeepValue(t.Context(), "name", nil))), path)
	}
}

func TestRefusedPaths(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	is.New(t).NoErr(os.WriteFile(text, []byte(strings.Repeat("this is no database", 100)), 0o600))
	for path, want := range map[string]string{
		dir: "is a directory", filepath.Join(dir, "none", "svc.db"): "no such file", text: "not a database",
		"": "not the path of a file", ":memory:": "not the path of a file", "/dev/null": "not a regular file", dir + "/svc.db/": "the path of a folder", filepath.Join(text, "svc.db"): "not a directory",
	} {
		_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	_, err := sqlite.Pending(t.Context(), dir+"/svc.db/")
	is.New(t).True(err != nil && len(must(os.ReadDir(dir))) == 1)
}

// A path with a line break at its end is a mistake, of which nothing is made.
func TestPathsWithControlCharacters(t *testing.T) {
	is, dir := is.New(t), t.TempDir()
	for _, name := range []string{"svc.db\n", "a\tb", "\x00", "c\u0085"} {
		path := filepath.Join(dir, name)
		_, opened := sqlite.Open(t.Context(), path, sqlite.Options{})
		_, pending := sqlite.Pending(t.Context(), path)
		_, tenants := sqlite.OpenTenants(t.Context(), path, sqlite.Options{})
		for _, err := range []error{opened, pending, tenants} {
			is.True(err != nil && strings.Contains(err.Error(), "the path must have no control characters"))
		}
	}
	is.Equal(len(must(os.ReadDir(dir))), 0)
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	open(t, path)
	files := must(filepath.Glob(path + "*"))
	is.Equal(len(files), 3) // the database, its log and the log's index
	for _, file := range files {
		is.Equal(must(os.Stat(file)).Mode().Perm(), fs.FileMode(0o600))
	}
}

func TestCloseLeavesOneFile(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	store := must(sqlite.Open(t.Context(), path, sqlite.Options{}))
	must(store.KeepValue(t.Context(), "name", []byte("value")))
	is.NoErr(store.Close())
	is.Equal(must(filepath.Glob(path+"*")), []string{path})
	is.True(failure(sqltest.ReadUser(t.Context(), store, "alice")) != nil) // closed
}

func TestLargeManifestsEndAChunk(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t))
	for i := range 10 {
		template := svc.Template{TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: strings.Repeat("x", i+1)}}
		template.Manifest = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
		is.NoErr(store.CreateTemplate(t.Context(), template))
	}
	chunk := must(store.Templates(t.Context(), svc.TemplatePage{Scope: svc.ScopeServer, TemplateQuery: svc.TemplateQuery{Limit: 10}}))
	is.Equal(len(chunk), 6) // more than 512 KiB
}

// impatient opens a store that waits only a moment for other processes.
func impatient(t *testing.T, path string) (*sqlstore.Store, func(pragma string)) {
	db := raw(t, path, "_txlock=immediate", "_pragma=busy_timeout(20)", "_pragma=foreign_keys(1)")
	return sqlstore.New(db, db, sqlite.Dialect()), func(pragma string) { must(db.Exec("PRAGMA " + pragma)) }
}

func TestLockedIsUnavailable(t *testing.T) {
	is := is.New(t)
	path := migrated(t)
	store, _ := impatient(t, path)
	tx := must(raw(t, path, "_txlock=immediate").Begin())
	is.True(errors.Is(failure(store.KeepValue(t.Context(), "name", []byte("value"))), svc.ErrUnavailable))
	is.True(errors.Is(failure(sqltest.ReadUser(t.Context(), store, "alice")), svc.ErrNotFound)) // reading goes on
	is.NoErr(tx.Rollback())
	must(store.KeepValue(t.Context(), "name", []byte("value")))
}

func TestFullIsUnavailableAndLeavesNothing(t *testing.T) {
	is := is.New(t)
	store, pragma := impatient(t, migrated(t))
	pragma("max_page_count = 1")
	template := svc.Template{TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: "t"}}
	template.Manifest = []byte(`{"version":"` + strings.Repeat("x", 1<<20) + `"}`)
	is.True(errors.Is(store.CreateTemplate(t.Context(), template), svc.ErrUnavailable))
	is.True(errors.Is(failure(store.Template(t.Context(), template.TemplateKey)), svc.ErrNotFound))
	pragma("max_page_count = 100000")
	is.NoErr(store.CreateTemplate(t.Context(), template))
}

func TestReadOnlyIsUnavailable(t *testing.T) {
	store, pragma := impatient(t, migrated(t))
	pragma("query_only = 1")
	is.New(t).True(errors.Is(failure(store.KeepValue(t.Context(), "name", []byte("value"))), svc.ErrUnavailable))
}

func TestCanceledWhileChanging(t *testing.T) {
	sqltest.CanceledWhileChanging(t, open(t, migrated(t)))
}

// A caller that leaves does not make others wait for the rest of its statements.
func TestNoStatementBeginsOnceTheCallerHasLeft(t *testing.T) {
	is := is.New(t)
	path := migrated(t)
	db := raw(t, path)
	must(db.Exec("CREATE TRIGGER ran BEFORE INSERT ON svc_users BEGIN SELECT RAISE(ABORT, 'a statement ran'); END"))
	leaves := func(store svc.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		err := store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
			cancel()
			return svc.Bundle{Users: []svc.User{{ID: "alice"}}}.Write(), nil
		})
		is.True(errors.Is(err, context.Canceled))
		is.True(!strings.Contains(err.Error(), "a statement ran"))
	}
	leaves(open(t, path))
	tx := must(db.Begin())
	defer tx.Rollback()
	leaves(sqlstore.Tx(tx, sqlite.Dialect()))
}

func TestReferencesAreKept(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t))
	for _, b := range []svc.Bundle{
		{Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}},
		{Attachments: []svc.Attachment{{PolicyID: "none", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "alice"}}}},
		{Users: []svc.User{{ID: "a", Channels: []svc.Channel{{Provider: "p"}}}, {ID: "b", Channels: []svc.Channel{{Provider: "p"}}}}},
	} {
		err := store.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return b.Write(), nil })
		is.True(err != nil)
	}
	is.True(errors.Is(failure(sqltest.ReadUser(t.Context(), store, "a")), svc.ErrNotFound)) // nothing was written
}

// A Store that only reads makes nothing, changes nothing, and refuses tables of another version.
func TestReadOnly(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	reading := sqlite.Options{ReadOnly: true}
	is.True(errors.Is(failure(sqlite.Open(t.Context(), path, reading)), fs.ErrNotExist))
	writer := open(t, path)
	must(writer.KeepValue(t.Context(), "name", []byte("value")))
	reader := must(sqlite.Open(t.Context(), path, reading)) // while the other one is open
	value, err := reader.KeepValue(t.Context(), "name", nil)
	is.NoErr(err)
	is.Equal(string(value), "value")
	is.True(errors.Is(reader.CreateSource(t.Context(), svc.Source{SourceKey: svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}}), svc.ErrUnavailable))
	is.True(errors.Is(reader.Migrate(t.Context()), nil)) // there is nothing to do
	is.NoErr(reader.Close())
	for version, want := range map[string]string{"(1000)": "newer program", "(-1)": "start the server"} {
		must(writer.DB().Exec("DELETE FROM svc_migrations; INSERT INTO svc_migrations VALUES " + version))
		_, err = sqlite.Open(t.Context(), path, reading)
		is.True(err != nil && strings.Contains(err.Error(), want))
	}
}

// A Store acknowledges nothing that is lost with its files: when one is removed or replaced, it refuses, also commits
// of the host, until the file is back.
func TestFilesThatAreMoved(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		for _, replaced := range []bool{false, true} {
			if replaced && suffix != "" {
				continue
			}
			is := is.New(t)
			path := filepath.Join(t.TempDir(), "svc.db")
			store := open(t, path)
			service := sqltest.Serve(t, svc.Config{Store: store})
			is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
			is.NoErr(os.Rename(path+suffix, path+".moved"))
			if replaced {
				is.NoErr(os.WriteFile(path, nil, 0o600))
			}
			_, err := service.Users.Create(t.Context(), svc.Host, svc.User{ID: "bob"})
			is.True(errors.Is(err, svc.ErrUnavailable))
			is.True(failure(store.DB().Exec("UPDATE svc_locks SET name = name")) != nil)
			is.True(errors.Is(service.Ping(t.Context()), svc.ErrUnavailable))
			is.NoErr(os.Rename(path+".moved", path+suffix))
			is.NoErr(service.Ping(t.Context()))
			must(service.Users.Create(t.Context(), svc.Host, svc.User{ID: "bob"}))
			is.NoErr(service.Ping(t.Context()))
			is.NoErr(store.Close())
			must(sqltest.ReadUser(t.Context(), open(t, path), "bob"))
		}
	}
}

// No connection makes the file: an empty one would look like a database that has lost everything.
func TestMissingFileIsNotMade(t *testing.T) {
	is := parallel(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	store := open(t, path)
	store.DB().SetMaxIdleConns(0) // the next one is new
	is.NoErr(os.Remove(path))
	is.True(errors.Is(failure(store.KeepValue(t.Context(), "name", []byte("value"))), svc.ErrUnavailable))
	is.True(errors.Is(failure(os.Stat(path)), os.ErrNotExist))
}

// A file that is lost or empty is no new one while its log has commits. Nothing is made, and the log stays.
func TestLostFileOfALog(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	source := filepath.Join(t.TempDir(), "svc.db")
	store := open(t, source)
	is.NoErr(sqltest.AddUsers(ctx, store, "alice"))
	data := must(os.ReadFile(source)) // as after a crash
	log := must(os.ReadFile(source + "-wal"))
	is.NoErr(store.Close())
	for _, lost := range []bool{false, true} {
		dir := t.TempDir()
		path, link := filepath.Join(dir, "svc.db"), filepath.Join(t.TempDir(), "link.db")
		is.NoErr(os.WriteFile(path+"-wal", log, 0o600))
		is.NoErr(os.WriteFile(path, nil, 0o600))
		is.NoErr(os.Symlink(path, link))
		if lost {
			is.NoErr(os.Remove(path))
			link = path
		}
		for name, try := range map[string]func() error{
			"open": func() error { return sqltest.KeepAndClose(sqlite.Open(ctx, path, sqlite.Options{})) },
			"link": func() error { return sqltest.KeepAndClose(sqlite.Open(ctx, link, sqlite.Options{})) },
			"read": func() error {
				return sqltest.KeepAndClose(sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true}))
			},
			"pending": func() error {
				return failure(sqlite.Pending(ctx, path))
			},
		} {
			err := try()
			if name == "read" && lost {
				is.True(errors.Is(err, os.ErrNotExist))
			} else if err == nil || !strings.Contains(err.Error(), "put the file back") {
				t.Errorf("%s, lost: %v: %v", name, lost, err)
			}
		}
		is.True(bytes.Equal(must(os.ReadFile(path+"-wal")), log))
		is.Equal(errors.Is(failure(os.Stat(path)), os.ErrNotExist), lost)
		is.NoErr(os.WriteFile(path, data, 0o600)) // it is back
		must(sqltest.ReadUser(ctx, open(t, path), "alice"))
	}
}

// A file may have a symbolic link for a name. With a hard link it would have two logs.
func TestLinkedFile(t *testing.T) {
	is := parallel(t)
	path, link := filepath.Join(t.TempDir(), "svc.db"), filepath.Join(t.TempDir(), "link.db")
	is.NoErr(open(t, path).Close())
	if err := os.Link(path, link); err == nil && runtime.GOOS != "windows" {
		for i, name := range []string{path, link, path, link} {
			_, err = sqlite.Open(t.Context(), name, sqlite.Options{ReadOnly: i > 1})
			is.True(err != nil && strings.Contains(err.Error(), "a hard link"))
		}
		is.NoErr(os.Remove(link))
		in := must(sqlite.OpenTenants(t.Context(), t.TempDir(), sqlite.Options{}))
		tenant := must(in.CreateTenant(t.Context(), "a", svc.TenantActive, time.Now()))
		is.NoErr(os.Link(in.Path(tenant), in.Path(tenant)+"-copy"))
		_, _, err = in.OpenTenant(t.Context(), tenant)
		is.True(err != nil && strings.Contains(err.Error(), "a hard link"))
		is.NoErr(in.Close())
	}
	is.NoErr(os.Symlink(path, link))
	store := must(sqlite.Open(t.Context(), link, sqlite.Options{}))
	is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	is.NoErr(store.Close())
	must(sqltest.ReadUser(t.Context(), open(t, path), "alice"))
}
