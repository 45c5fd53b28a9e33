package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
	"github.com/extsvc/svc/store/storetest"
)

// TestMain runs more tests at once than there are processors, because most wait for the disk.
func TestMain(m *testing.M) {
	longtest.AtOnce(8)
	longtest.Short()
	m.Run()
}

// The suite does not wait for the disk, which is not what it is about.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) svc.Store { return openWith(t, migrated(t), sqlite.Options{Fast: true}) })
}

// made is a database with all tables: to copy it is faster than to make them again.
var made = sync.OnceValues(func() (data []byte, err error) {
	folder, err := os.MkdirTemp("", "svc-sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "svc.db")
	store, err := sqlite.Open(context.Background(), path, sqlite.Options{Fast: true})
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// migrated returns the path of a new database with all tables.
func migrated(t *testing.T) string {
	t.Helper()
	data := must(made())
	path := filepath.Join(t.TempDir(), "svc.db")
	is.New(t).NoErr(os.WriteFile(path, data, 0o600))
	return path
}

// open opens a store that is closed when the test ends.
func open(t *testing.T, path string) *sqlite.Store { return openWith(t, path, sqlite.Options{}) }

func openWith(t *testing.T, path string, options sqlite.Options) *sqlite.Store {
	t.Helper()
	store := must(sqlite.Open(t.Context(), path, options))
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestPolicyInUse: no statement can delete an attached policy, not even directly in SQL. A policy
// that narrows a service account can be deleted; the account is then denied everything, as it is
// after the deletion of its owner.
func TestPolicyInUse(t *testing.T) {
	is := is.New(t)
	db := raw(t, migrated(t), "_txlock=immediate", "_pragma=foreign_keys(1)")
	service := must(svc.New(svc.Config{Store: sqlstore.New(db, db, sqlite.Dialect())}))
	defer service.Close()
	bundle := must(svc.ParseBundle([]byte(`{
		"users": [{"id":"alice"}], "service_accounts": [{"id":"ci","owner_user_id":"alice","scoping_policy_id":"narrow"},{"id":"free","owner_user_id":"alice"}],
		"policies": [{"id":"wide","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}},
			{"id":"narrow","document":{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:*"],"banks":["*"]}]}}],
		"attachments": [{"policy_id":"wide","principal_type":"user","principal_id":"alice"}]}`)))
	is.NoErr(service.Access.Apply(t.Context(), svc.Host, bundle))
	reason := func(account string) string {
		r := must(service.Policies.Resolve(t.Context(), svc.Host, svc.Question{ServiceAccountID: account, Bank: "notes"}))
		if r.Outcome == svc.Allow {
			return "allowed"
		}
		return r.Reason
	}
	is.Equal(reason("ci"), "allowed")
	_, err := db.Exec(`DELETE FROM svc_policies WHERE id = 'wide'`)
	is.True(err != nil) // FOREIGN KEY constraint failed
	must(db.Exec(`DELETE FROM svc_policies WHERE id = 'narrow'`))
	is.Equal(reason("ci"), `the scoping policy "narrow" of service account "ci" is gone`)
	is.Equal(reason("free"), "allowed")
	must(db.Exec(`DELETE FROM svc_users`))
	is.Equal(reason("free"), `the owner "alice" of service account "free" is unknown`)
}

// parallel lets a test run beside others, and returns its checks.
func parallel(t *testing.T) *is.I {
	t.Parallel()
	return is.New(t)
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A nil context is a mistake that panics. It leaves no lock of the pool behind, and no goroutine that panics.
func TestNilContext(t *testing.T) {
	t.Parallel()
	store := openWith(t, migrated(t), sqlite.Options{Fast: true})
	for of, method := range reflect.ValueOf(store).Methods() {
		if of.Name == "Close" {
			continue
		}
		args := make([]reflect.Value, method.Type().NumIn())
		for i := range args {
			args[i] = reflect.Zero(method.Type().In(i))
		}
		func() {
			defer func() { _ = recover() }()
			method.Call(args)
		}()
	}
	is.New(t).NoErr(store.CreateSource(t.Context(), svc.Source{SourceKey: svc.SourceKey{Scope: svc.ScopeServer, Name: "a"}}))
}

// A host that closes the store first has callers yet: they may try another process.
func TestClosedStore(t *testing.T) {
	is := parallel(t)
	store := openWith(t, migrated(t), sqlite.Options{Fast: true})
	is.NoErr(store.Close())
	_, err := sqltest.ReadUser(t.Context(), store, "alice")
	is.True(errors.Is(err, svc.ErrUnavailable))
	is.True(errors.Is(sqltest.AddUsers(t.Context(), store, "alice"), svc.ErrUnavailable))
}
