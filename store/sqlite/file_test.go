package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
)

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
			service := must(svc.New(svc.Config{Store: store}))
			t.Cleanup(func() { _ = service.Close() })
			is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
			is.NoErr(os.Rename(path+suffix, path+".moved"))
			if replaced {
				is.NoErr(os.WriteFile(path, nil, 0o600))
			}
			_, err := service.Users.Create(t.Context(), svc.Host, svc.User{ID: "bob"})
			is.True(errors.Is(err, svc.ErrUnavailable))
			_, err = store.DB().Exec("UPDATE svc_locks SET name = name")
			is.True(err != nil)
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
	_, err := store.KeepValue(t.Context(), "name", []byte("value"))
	is.True(errors.Is(err, svc.ErrUnavailable))
	_, err = os.Stat(path)
	is.True(errors.Is(err, os.ErrNotExist))
}

// A file that is lost or empty is no new one while its log has commits. Nothing is made, and the log
// stays.
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
				_, err := sqlite.Pending(ctx, path)
				return err
			},
		} {
			err := try()
			if name == "read" && lost {
				is.True(errors.Is(err, os.ErrNotExist))
			} else if err == nil || !strings.Contains(err.Error(), "put the file back") {
				t.Errorf("%s, lost: %v: %v", name, lost, err)
			}
		}
		kept := must(os.ReadFile(path + "-wal"))
		is.True(bytes.Equal(kept, log))
		_, err := os.Stat(path)
		is.Equal(errors.Is(err, os.ErrNotExist), lost)
		is.NoErr(os.WriteFile(path, data, 0o600)) // it is back
		must(sqltest.ReadUser(ctx, open(t, path), "alice"))
	}
}

// A file may have a symbolic link for a name.
func TestLinkedFile(t *testing.T) {
	is := parallel(t)
	path, link := filepath.Join(t.TempDir(), "svc.db"), filepath.Join(t.TempDir(), "link.db")
	is.NoErr(open(t, path).Close())
	is.NoErr(os.Symlink(path, link))
	store := must(sqlite.Open(t.Context(), link, sqlite.Options{}))
	is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	is.NoErr(store.Close())
	must(sqltest.ReadUser(t.Context(), open(t, path), "alice"))
}
