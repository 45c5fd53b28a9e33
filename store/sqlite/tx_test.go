package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// hosted opens a file that also holds a table of the host.
func hosted(t *testing.T) *sqlite.Store {
	t.Helper()
	store := open(t, filepath.Join(t.TempDir(), "svc.db"))
	if _, err := store.DB().Exec("CREATE TABLE tenants (id TEXT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	return store
}

func begin(t *testing.T, store *sqlite.Store) (*sql.Tx, svc.FullStore) {
	t.Helper()
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx, sqlstore.Tx(tx, sqlite.Dialect())
}

func tenants(t *testing.T, store *sqlite.Store) (n int) {
	t.Helper()
	if err := store.DB().QueryRow("SELECT count(*) FROM tenants").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var template = svc.Template{
	TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: "t"}, Content: svc.Content{Name: "n", Manifest: json.RawMessage(`{}`)},
}

// writeAll makes one mutation of each kind, and keeps a file and an event.
func writeAll(ctx context.Context, store svc.FullStore) error {
	_, kept := store.KeepValue(ctx, "name", []byte("value"))
	return errors.Join(kept,
		store.CreateSource(ctx, svc.Source{SourceKey: svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}}),
		store.ChangeSource(ctx, svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}, func(s *svc.Source) (bool, error) { s.URL = "changed"; return true, nil }),
		store.KeepSourceFile(ctx, svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}, svc.SourceFile{Data: []byte("{}")}),
		store.KeepSourceFile(ctx, svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}, svc.SourceFile{Data: []byte("{}")}),
		store.CreateTemplate(ctx, template),
		store.ChangeTemplate(ctx, template.TemplateKey, func(t *svc.Template) (bool, error) { t.Name = "changed"; return true, nil }),
		store.CreateAPIKey(ctx, key(1)),
		store.ChangeAPIKey(ctx, svc.Identity{}, "key-1", func(key *svc.APIKey) (bool, error) {
			key.RevokedAt, key.Hash, key.Seal = time.Unix(1, 0), nil, nil
			return true, nil
		}),
		store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
			return svc.Bundle{Users: []svc.User{{ID: "alice"}}}.Write(), nil
		}),
		store.AddEvents(ctx, []svc.Event{{ID: uuid.Must(uuid.NewV7())}}),
	)
}

func TestRollbackLeavesNothing(t *testing.T) {
	is := is.New(t)
	store := hosted(t)
	tx, inside := begin(t, store)
	is.NoErr(writeAll(t.Context(), inside))
	_, err := tx.Exec("INSERT INTO tenants VALUES ('acme')")
	is.NoErr(err)
	is.NoErr(tx.Rollback())
	is.Equal(tenants(t, store), 0)
	is.Equal(sqltest.Generation(t, store), int64(0))
	for _, table := range []string{"svc_sources", "svc_source_files", "svc_templates", "svc_api_keys", "svc_users", "svc_kept_values", "svc_changefeed", "svc_outbox"} {
		var rows int
		is.NoErr(store.DB().QueryRow("SELECT count(*) FROM " + table).Scan(&rows))
		is.Equal(rows, 0)
	}
	is.NoErr(writeAll(t.Context(), store)) // nothing is in the way
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
	tx, err := db.BeginTx(t.Context(), nil)
	is.NoErr(err)
	err = sqlstore.Tx(tx, sqlite.Dialect()).ChangeTemplate(t.Context(), svc.TemplateKey{ID: "none"}, nil)
	is.True(errors.Is(err, svc.ErrNotFound))
	is.NoErr(tx.Rollback())
	is.Equal(seen, []string{"SAVEPOINT svc", "ROLLBACK TO SAVEPOINT svc", "RELEASE SAVEPOINT svc"})
}

func TestCommitShowsAll(t *testing.T) {
	is := is.New(t)
	store := hosted(t)
	tx, inside := begin(t, store)
	is.NoErr(writeAll(t.Context(), inside))
	_, err := tx.Exec("INSERT INTO tenants VALUES ('acme')")
	is.NoErr(err)
	_, err = store.Template(t.Context(), template.TemplateKey)
	is.True(errors.Is(err, svc.ErrNotFound)) // others do not see it yet
	is.Equal(sqltest.Generation(t, store), int64(0))

	read, err := inside.Template(t.Context(), template.TemplateKey)
	is.NoErr(err)
	is.Equal(read.Name, "changed") // it sees its own
	snapshot, err := inside.Access(t.Context(), svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: "alice"}})
	is.NoErr(err)
	is.Equal(snapshot.Generation, int64(7))
	is.Equal(snapshot.User.ID, "alice")
	is.Equal(sqltest.Generation(t, inside), int64(7))

	is.NoErr(tx.Commit())
	is.Equal(tenants(t, store), 1)
	changes, err := store.Changes(t.Context(), 0)
	is.NoErr(err)
	is.Equal(changes.Generation, int64(7))
	is.Equal(len(changes.Targets), 6) // the kept value is no target
	events, err := store.ClaimEvents(t.Context(), time.Now(), time.Now(), 10)
	is.NoErr(err)
	is.Equal(len(events), 1)
}

func TestErrorsLeaveTheTransactionUsable(t *testing.T) {
	is := is.New(t)
	store := hosted(t)
	tx, inside := begin(t, store)
	is.NoErr(inside.CreateAPIKey(t.Context(), key(1)))
	is.True(errors.Is(inside.CreateAPIKey(t.Context(), key(1)), svc.ErrExists))
	is.True(errors.Is(inside.DeleteTemplate(t.Context(), template.TemplateKey, nil), svc.ErrNotFound))
	refused := errors.New("refused")
	for _, change := range []func() (svc.AccessWrite, error){
		func() (svc.AccessWrite, error) { return svc.Bundle{Users: []svc.User{{ID: "half"}}}.Write(), refused },
		func() (svc.AccessWrite, error) {
			return svc.Bundle{Users: []svc.User{{ID: "half"}}, Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}}.Write(), nil
		},
		func() (svc.AccessWrite, error) { panic("oh") },
	} {
		func() {
			defer func() { _ = recover() }()
			err := inside.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return change() })
			is.True(err != nil)
		}()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	is.True(errors.Is(inside.CreateAPIKey(ended, key(2)), context.Canceled))
	is.True(inside.AwaitChange(t.Context(), 0) != nil)
	_, err := inside.ClaimEvents(t.Context(), time.Now(), time.Now(), 1)
	is.True(err != nil)
	_, err = tx.Exec("INSERT INTO tenants VALUES ('acme')")
	is.NoErr(err)
	is.NoErr(inside.CreateAPIKey(t.Context(), key(3)))
	is.NoErr(tx.Commit())

	is.Equal(tenants(t, store), 1)
	keys, err := store.APIKeys(t.Context(), svc.APIKeyPage{KeyQuery: svc.KeyQuery{Limit: 10}})
	is.NoErr(err)
	is.Equal(keys, []svc.APIKey{key(3), key(1)})
	_, err = sqltest.ReadUser(t.Context(), store, "half")
	is.True(errors.Is(err, svc.ErrNotFound))
	is.True(errors.Is(inside.CreateAPIKey(t.Context(), key(4)), sql.ErrTxDone)) // it ended with tx
}

// eventLog collects events.
type eventLog struct {
	mu     sync.Mutex
	events []svc.Event
}

func (l *eventLog) add(_ context.Context, event svc.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

func (l *eventLog) targets() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, event := range l.events {
		ids = append(ids, event.Target.ID)
	}
	return ids
}

// waitFor waits until the events have those targets.
func (l *eventLog) waitFor(t *testing.T, ids ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !slices.Equal(l.targets(), ids); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("events about %v, want %v", l.targets(), ids)
		}
	}
}

func newService(t *testing.T, store svc.Store, events *eventLog) *svc.Service {
	t.Helper()
	service, err := svc.New(svc.Config{Store: store, Events: svc.EventConfig{OnEvent: events.add}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return service
}

func TestServiceInTransactions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store, events := hosted(t), &eventLog{}
	service := newService(t, store, events)
	holder := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	issue := func(end func(*sql.Tx) error) svc.IssuedKey {
		tx, inside := begin(t, store)
		_, err := tx.Exec("INSERT INTO tenants VALUES ('acme')")
		is.NoErr(err)
		issued, err := service.WithTx(inside).Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{})
		is.NoErr(err)
		_, err = service.WithTx(inside).Authenticate(t.Context(), string(issued.Key))
		is.NoErr(err) // several calls in one transaction
		is.NoErr(end(tx))
		return issued
	}
	lost := issue((*sql.Tx).Rollback)
	_, err := service.Authenticate(t.Context(), string(lost.Key))
	is.True(err != nil)
	kept := issue((*sql.Tx).Commit)
	who, err := service.Authenticate(t.Context(), string(kept.Key))
	is.NoErr(err)
	is.Equal(who.ID, "alice")
	is.Equal(tenants(t, store), 1)
	events.waitFor(t, kept.ID) // and none of what was rolled back
}

func TestEventsOutliveTheProcess(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	store, before := open(t, path), &eventLog{}
	service := newService(t, store, before)
	is.NoErr(service.Close())
	tx, inside := begin(t, store)
	issued, err := service.WithTx(inside).Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
	is.NoErr(err)
	is.NoErr(tx.Commit())

	after := &eventLog{}
	again := open(t, path)
	newService(t, again, after)
	after.waitFor(t, issued.ID)
	is.Equal(len(before.targets()), 0)
}

// A removal in a transaction of the host is undone with it.
func TestRemovalInAHostTransaction(t *testing.T) {
	is := is.New(t)
	store := hosted(t)
	source := svc.SourceKey{Scope: svc.ScopePersonal, Owner: "alice", Name: "s"}
	is.NoErr(store.CreateSource(t.Context(), svc.Source{SourceKey: source}))
	for _, commits := range []bool{false, true} {
		tx, inside := begin(t, store)
		var gone []svc.Target
		is.NoErr(inside.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
			remove, of := svc.AccessNames{Users: []string{"alice"}}, []svc.Target{{Kind: svc.TargetUser, ID: "alice"}}
			return svc.AccessWrite{Remove: remove, Targets: of, Gone: func(g []svc.Target) { gone = g }}, nil
		}))
		is.Equal(gone, []svc.Target{source.Target()})
		_, err := inside.Source(t.Context(), source)
		is.True(errors.Is(err, svc.ErrNotFound))
		if commits {
			is.NoErr(tx.Commit())
		} else {
			is.NoErr(tx.Rollback())
		}
		_, err = store.Source(t.Context(), source)
		is.Equal(errors.Is(err, svc.ErrNotFound), commits)
	}
	changes, err := store.Changes(t.Context(), 1)
	is.NoErr(err)
	is.Equal(changes.Targets, []svc.Target{{Kind: svc.TargetUser, ID: "alice"}, source.Target()})
}
