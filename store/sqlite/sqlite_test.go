package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
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
	t.Cleanup(func() { is.New(t).NoErr(store.Close()) })
	return store
}

// TestPolicyInUse: no statement can delete an attached policy, not even directly in SQL. A policy that narrows a
// service account can be deleted; the account is then denied everything, as it is after the deletion of its owner.
func TestPolicyInUse(t *testing.T) {
	is := is.New(t)
	db := raw(t, migrated(t), "_txlock=immediate", "_pragma=foreign_keys(1)")
	service := sqltest.Serve(t, svc.Config{Store: sqlstore.New(db, db, sqlite.Dialect())})
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
	is.True(failure(db.Exec(`DELETE FROM svc_policies WHERE id = 'wide'`)) != nil) // FOREIGN KEY constraint failed
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

func failure[T any](_ T, err error) error { return err }

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
	is.True(errors.Is(failure(sqltest.ReadUser(t.Context(), store, "alice")), svc.ErrUnavailable))
	is.True(errors.Is(sqltest.AddUsers(t.Context(), store, "alice"), svc.ErrUnavailable))
}

// A generation whose changes have no row is a gap: readers from before it start again.
func TestGapsInChangesAreAReset(t *testing.T) {
	is := is.New(t)
	store := open(t, migrated(t))
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(1)))
	must(store.DB().Exec(`UPDATE svc_generation SET value = value + 1`))
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(2)))
	for since, reset := range map[int64]bool{0: true, 1: true, 2: false, 3: false, 4: true} {
		is.Equal(must(store.Changes(t.Context(), since)).Reset, reset)
	}
}

// A database that has lost its generation fails, and does not look as if it lacked a row that was asked for.
func TestGenerationIsMissing(t *testing.T) {
	store := open(t, migrated(t))
	must(store.DB().Exec(`DELETE FROM svc_generation`))
	_, access := store.Access(t.Context(), svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: "alice"}})
	for _, err := range []error{access, failure(store.Generation(t.Context())), failure(store.Changes(t.Context(), 0))} {
		is.New(t).True(!errors.Is(err, svc.ErrNotFound) && strings.Contains(err.Error(), "restore the tables"))
	}
}

func TestOldChangesAreForgotten(t *testing.T) {
	is := parallel(t)
	store := open(t, migrated(t))
	fill(t, store.DB(), 12_031)
	oldest := func() int { return sqltest.Value[int](t, store.DB(), "SELECT MIN(number) FROM svc_changefeed") }
	is.Equal(oldest(), 1)
	is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(0)))
	is.Equal(oldest(), 1025) // so many at once
	for i := range 256 {
		is.NoErr(store.CreateSource(t.Context(), sqltest.NamedSource(1+i)))
	}
	is.Equal(oldest(), 2049)
	for since, reset := range map[int64]bool{0: true, 2000: true, 2047: true, 2048: false, 12_000: false} {
		changes := must(store.Changes(t.Context(), since))
		is.Equal(changes.Reset, reset)
		if !reset {
			is.Equal(int64(len(changes.Targets)), 12_031+257-since)
		}
	}
}

func fill(t *testing.T, db *sql.DB, generations int) {
	t.Helper()
	_, err := db.Exec(`INSERT INTO svc_changefeed WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT i, 1, i, '{"Targets":[{"Kind":"user","ID":"u' || i || '"}]}' FROM n`, generations)
	if err == nil {
		_, err = db.Exec(`UPDATE svc_generation SET value = $1`, generations)
	}
	is.New(t).NoErr(err)
}

// A transaction prepares each of its statements once, even the first transaction of a Store: many
// events cost no more preparations than few.
func TestTransactionsPrepareStatementsOnce(t *testing.T) {
	is := is.New(t)
	var readied []int64
	for _, events := range []int{2, 40} {
		seen := &tap{}
		store := tapped(t, migrated(t), seen)
		for range 2 {
			list := make([]svc.Event, events)
			for i := range list {
				list[i].ID = uuid.New()
			}
			is.NoErr(store.AddEvents(t.Context(), list))
			readied = append(readied, seen.readied.Swap(0))
		}
	}
	is.True(readied[0] > 0)
	is.Equal(readied[2:], readied[:2])
}

// The driver looks up each parameter by name, so the time of a statement grows with the square of its parameters.
func TestStatementsHaveFewParameters(t *testing.T) {
	is := is.New(t)
	most := 0
	store := tapped(t, migrated(t), &tap{run: func(_ driver.Conn, query string) error {
		most = max(most, strings.Count(parametersOnce(query), "$"))
		return nil
	}})
	is.NoErr(sqltest.Serve(t, svc.Config{Store: store}).Access.Apply(t.Context(), svc.Host, crowdOf(400)))
	is.True(most > 0)
	is.True(most <= 32)
}

// A large bundle reports its progress several times.
func TestBundleReportsProgress(t *testing.T) {
	is := is.New(t)
	service := sqltest.Serve(t, svc.Config{Store: open(t, migrated(t))})
	const users = 4000
	var reports []int
	is.NoErr(service.Access.Load(t.Context(), svc.Host, crowdOf(users), func(done, total int) {
		is.Equal(total, 2*users) // and a channel each
		reports = append(reports, done)
	}))
	is.True(len(reports) > 2)
	is.Equal(reports[len(reports)-1], 2*users)
}

func crowdOf(users int) (b svc.Bundle) {
	for i := range users {
		id := fmt.Sprintf("user-%06d", i)
		b.Users = append(b.Users, svc.User{ID: id, Channels: []svc.Channel{{Provider: "telegram", SenderID: id}}})
	}
	return b
}

// TestMutationsThatAreKeptShareCommits: the mutation's transaction writes the record, so it costs no extra commit.
func TestMutationsThatAreKeptShareCommits(t *testing.T) {
	is := is.New(t)
	seen := &tap{}
	c := newCrowd(t, tappedDB(t, migrated(t), seen))
	service := sqltest.Serve(t, svc.Config{Store: c.store, Events: svc.EventConfig{Keep: true}})
	for i := range 16 {
		c.join(t.Context(), func(ctx context.Context) {
			if err := sqltest.CreateTemplate(ctx, service, fmt.Sprint(i%12)); (err != nil) != (svc.ErrorCode(err) == svc.CodeExists) {
				t.Error(err)
			}
		})
	}
	c.letGo(t)
	is.Equal(seen.commits.Load(), int64(1))
	is.Equal(sqltest.Generation(t, c.store), int64(12))
	check := must(service.Audit.Verify(t.Context(), svc.Host))
	is.Equal(check.Fault, nil)
	is.Equal(check.Newest.Number, int64(12)) // and none of those that were refused
}

func newHost(t *testing.T, path string) sqltest.Host {
	t.Helper()
	store := open(t, path)
	return sqltest.NewHost(t, store, store.DB(), func(tx *sql.Tx) svc.FullStore {
		return sqlstore.Tx(tx, sqlite.Dialect())
	})
}

func TestHost(t *testing.T) {
	t.Parallel()
	for name, rule := range sqltest.HostRules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t, newHost(t, migrated(t)))
		})
	}
}

// A call that fails releases its savepoint, so that a long transaction does not collect them.
func TestFailedCallReleasesSavepoint(t *testing.T) {
	is := is.New(t)
	var seen []string
	db := tappedDB(t, migrated(t), &tap{run: func(_ driver.Conn, query string) error {
		if strings.Contains(query, "SAVEPOINT") {
			seen = append(seen, query)
		}
		return nil
	}})
	tx := must(db.BeginTx(t.Context(), nil))
	err := sqlstore.Tx(tx, sqlite.Dialect()).ChangeTemplate(t.Context(), svc.TemplateKey{ID: "none"}, nil)
	is.True(errors.Is(err, svc.ErrNotFound))
	is.NoErr(tx.Rollback())
	is.Equal(seen, []string{"SAVEPOINT svc", "ROLLBACK TO SAVEPOINT svc", "RELEASE SAVEPOINT svc"})
}
