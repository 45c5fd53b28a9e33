package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// NamedSource returns a source of the server.
func NamedSource(name any) svc.Source {
	return svc.Source{SourceKey: svc.SourceKey{Scope: svc.ScopeServer, Name: fmt.Sprint(name)}}
}

// starters is how many open one new database together.
const starters = 8

// OpenAtOnce has several open one new database together. Each writes and ends.
func OpenAtOnce(t *testing.T, openAndWrite func() error) {
	t.Helper()
	var done sync.WaitGroup
	for range starters {
		done.Go(func() {
			if err := openAndWrite(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}

// KeepAndClose keeps a value in a store, unless it was not opened, and closes it.
func KeepAndClose[S interface {
	svc.Store
	io.Closer
}](store S, err error) error {
	if err != nil {
		return err
	}
	_, err = store.KeepValue(context.Background(), "name", []byte("value"))
	return errors.Join(err, store.Close())
}

// Databases are the databases of tests, by their URLs or paths.
type Databases struct {
	Dialect sqlstore.Dialect
	New     func(t *testing.T) string // an empty one
	Open    func(t *testing.T, address string) *sql.DB
	Migrate func(t *testing.T, address string)          // as a Store does
	Schema  func(t *testing.T, address string) []string // all tables, columns and indexes
}

// PrintedMigrations checks that the script, and the files one after the other, make the tables of the
// migrations, and that a Store then finds nothing to do.
func (d Databases) PrintedMigrations(t *testing.T) {
	is := checks{t}
	script, texts := sqlstore.SQL(d.Dialect), d.files(t)
	is.True(!strings.ContainsAny(script, "{}"))
	migrated := d.New(t)
	d.Migrate(t, migrated)
	want := d.Schema(t, migrated)
	for _, printed := range [][]string{{script}, texts} {
		address := d.New(t)
		db := d.Open(t, address)
		for _, text := range printed {
			_, err := db.Exec(text)
			is.NoErr(err)
		}
		is.Equal(d.Schema(t, address), want)
		pending, err := sqlstore.Pending(t.Context(), db, d.Dialect)
		is.NoErr(err)
		is.Equal(pending, "")
		d.Migrate(t, address)
		is.Equal(d.Schema(t, address), want)
	}
}

// files returns the texts of the migrations as files.
func (d Databases) files(t *testing.T) (texts []string) {
	is := checks{t}
	files := sqlstore.Migrations(d.Dialect)
	names, err := fs.Glob(files, "*")
	is.NoErr(err)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		is.NoErr(err)
		texts = append(texts, string(text))
	}
	return texts
}

// CanceledWhileChanging checks that nothing stays of a change of access whose caller leaves, and that
// the connection is good for others. The store has one.
func CanceledWhileChanging(t *testing.T, store svc.Store) {
	is := checks{t}
	ctx, cancel := context.WithCancel(t.Context())
	err := store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		cancel()
		return svc.Bundle{Users: []svc.User{{ID: "alice"}}}.Write(), nil
	})
	is.True(errors.Is(err, context.Canceled))
	_, err = ReadUser(t.Context(), store, "alice")
	is.True(errors.Is(err, svc.ErrNotFound))
	is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: "k"}))
}
