package sqltest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// checks end a test that goes wrong. Only tests import package is.
type checks struct{ *testing.T }

func (c checks) True(holds bool) {
	c.Helper()
	if !holds {
		c.Fatal("it does not hold")
	}
}

func (c checks) NoErr(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c checks) Equal(got, want any) {
	c.Helper()
	if !reflect.DeepEqual(got, want) {
		c.Fatalf("got %v, want %v", got, want)
	}
}

// Host is an application with a table in the database of its store.
type Host struct {
	T       *testing.T
	DB      *sql.DB
	Store   svc.FullStore
	Service *svc.Service
	Events  chan svc.Event
	Begin   func() HostTx
}

// HostTx is a transaction of the host, and the Store inside it.
type HostTx struct {
	svc.FullStore
	Exec             func(statement string, args ...any) error
	Commit, Rollback func() error
}

// NewHost makes the host's table. Its transactions are those of database/sql, in which inside
// returns the Store.
func NewHost(t *testing.T, store svc.FullStore, db *sql.DB, inside func(*sql.Tx) svc.FullStore) Host {
	t.Helper()
	h := Host{T: t, DB: db, Store: store, Events: make(chan svc.Event, 10)}
	h.Begin = func() HostTx {
		tx, err := db.BeginTx(t.Context(), nil)
		h.ok(err)
		return HostTx{inside(tx), func(statement string, args ...any) error {
			_, err := tx.Exec(statement, args...)
			return err
		}, tx.Commit, tx.Rollback}
	}
	_, err := db.Exec("CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY)")
	h.ok(err)
	h.Service = Serve(t, svc.Config{
		Store: store, Events: svc.EventConfig{OnEvent: func(_ context.Context, event svc.Event) { h.Events <- event }},
	})
	return h
}

func (h Host) ok(err error) {
	h.T.Helper()
	checks{h.T}.NoErr(err)
}

// SignUp makes an account with a key, in one transaction that the caller ends.
func (h Host) SignUp(id string) (HostTx, svc.IssuedKey) {
	h.T.Helper()
	tx := h.Begin()
	h.ok(tx.Exec("INSERT INTO accounts (id) VALUES ($1)", id))
	holder := svc.Identity{Kind: svc.KindUser, ID: id}
	key, err := h.Service.WithTx(tx).Keys.Issue(h.T.Context(), svc.Host, holder, svc.NewAPIKey{})
	h.ok(err)
	return tx, key
}

// Accepted reports whether the service accepts the key.
func (h Host) Accepted(key svc.IssuedKey) bool {
	h.T.Helper()
	_, err := h.Service.Authenticate(h.T.Context(), string(key.Key))
	if svc.ErrorCode(err) != svc.CodeUnauthenticated {
		h.ok(err)
	}
	return err == nil
}

// Count returns the number of rows, such as those of "accounts".
func (h Host) Count(of string) int {
	h.T.Helper()
	return Value[int](h.T, h.DB, "SELECT count(*) FROM "+of)
}

// AwaitEvent returns the next event.
func (h Host) AwaitEvent() (event svc.Event) {
	h.T.Helper()
	select {
	case event = <-h.Events:
	case <-time.After(time.Minute):
		h.T.Fatal("the event is not delivered")
	}
	return event
}

// AddUsers writes users.
func AddUsers(ctx context.Context, store svc.Store, ids ...string) error {
	return store.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
		var bundle svc.Bundle
		for _, id := range ids {
			bundle.Users = append(bundle.Users, svc.User{ID: id})
		}
		return bundle.Write(), nil
	})
}

var template = svc.Template{
	TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: "t"},
	Content:     svc.Content{Name: "n", Manifest: json.RawMessage(`{}`)},
}

// WriteAll makes one mutation of each kind, and keeps a file and an event.
func WriteAll(ctx context.Context, store svc.FullStore) error {
	return errors.Join(writes(ctx, store)...)
}

// writes returns what each mutation of WriteAll returns.
func writes(ctx context.Context, store svc.FullStore) []error {
	_, kept := store.KeepValue(ctx, "name", []byte("value"))
	return []error{
		kept,
		store.CreateSource(ctx, svc.Source{SourceKey: Source}),
		store.ChangeSource(ctx, Source, func(s *svc.Source) (bool, error) { s.URL = "changed"; return true, nil }),
		store.KeepSourceFile(ctx, Source, svc.SourceFile{Data: []byte("{}")}),
		store.KeepSourceFile(ctx, Source, svc.SourceFile{Data: []byte("{}")}),
		store.CreateTemplate(ctx, template),
		store.ChangeTemplate(ctx, template.TemplateKey, func(t *svc.Template) (bool, error) { t.Name = "changed"; return true, nil }),
		store.CreateAPIKey(ctx, svc.APIKey{ID: "key-1", Prefix: "1"}),
		store.ChangeAPIKey(ctx, svc.Identity{}, "key-1", func(key *svc.APIKey) (bool, error) {
			key.RevokedAt, key.Hash, key.Seal = time.Unix(1, 0), nil, nil
			return true, nil
		}),
		AddUsers(ctx, store, "alice"),
		store.AddEvents(ctx, []svc.Event{{ID: uuid.Must(uuid.NewV7())}}),
	}
}

// written is the rows of WriteAll and SignUp.
var written = []string{
	"accounts", "svc_sources", "svc_source_files", "svc_templates", "svc_api_keys", "svc_users",
	"svc_kept_values WHERE name = 'name'", "svc_changefeed WHERE changed <> '{}'", "svc_outbox",
}

// HostRules are the rules of transactions of a host.
var HostRules = map[string]func(t *testing.T, h Host){
	"rollback": rollsBack, "commit": commits, "asked early": askedEarly, "failures": goesOn, "removal": removes,
	"ended": refusesEnded,
}

// A transaction that is rolled back leaves nothing.
func rollsBack(t *testing.T, h Host) {
	is := checks{t}
	before := Generation(t, h.Store)
	tx, key := h.SignUp("alice")
	h.ok(WriteAll(t.Context(), tx))
	h.ok(tx.Rollback())
	is.True(!h.Accepted(key))
	is.Equal(Generation(t, h.Store), before)
	for _, rows := range written {
		is.Equal(h.Count(rows), 0)
	}
	h.ok(WriteAll(t.Context(), h.Store)) // nothing is in the way
	is.Equal(h.AwaitEvent().Action, event.Action(""))
}

// A transaction sees its own writes. Others see them, and get the events, when it commits.
func commits(t *testing.T, h Host) {
	is := checks{t}
	before := Generation(t, h.Store)
	tx, key := h.SignUp("alice")
	h.ok(WriteAll(t.Context(), tx))
	_, err := ReadKey(t.Context(), h.Store, key.ID)
	is.True(errors.Is(err, svc.ErrNotFound)) // not yet
	_, err = h.Store.Template(t.Context(), template.TemplateKey)
	is.True(errors.Is(err, svc.ErrNotFound))
	is.Equal(Generation(t, h.Store), before)
	_, err = h.Service.WithTx(tx).Authenticate(t.Context(), string(key.Key))
	h.ok(err)
	read, err := tx.Template(t.Context(), template.TemplateKey)
	h.ok(err)
	is.Equal(read.Name, "changed")
	_, err = ReadUser(t.Context(), tx, "alice")
	h.ok(err)
	h.ok(tx.Commit())
	is.True(h.Accepted(key))
	is.Equal(h.Count("accounts"), 1)
	changes, err := h.Store.Changes(t.Context(), before)
	h.ok(err)
	is.Equal(len(changes.Targets), 7) // the kept value is no target
	one, other := h.AwaitEvent().Target, h.AwaitEvent().Target
	is.True(one == key.Target() || other == key.Target())
}

// A key that was asked for before the commit is accepted after it: nothing caches its absence.
func askedEarly(t *testing.T, h Host) {
	is := checks{t}
	shown := func(tx HostTx, key svc.IssuedKey) {
		is.True(!h.Accepted(key))
		h.ok(tx.Commit())
		for deadline := time.Now().Add(time.Minute); !h.Accepted(key); time.Sleep(time.Millisecond) {
			is.True(time.Now().Before(deadline))
		}
	}
	tx, key := h.SignUp("alice")
	shown(tx, key)
	tx = h.Begin()
	keys := h.Service.WithTx(tx).Keys
	successor, err := keys.Rotate(t.Context(), svc.Host, key.Holder, key.ID, svc.Rotation{})
	h.ok(err)
	shown(tx, successor)
}

// A call that fails or is refused leaves the host's transaction usable, without what it wrote.
func goesOn(t *testing.T, h Host) {
	is := checks{t}
	tx, key := h.SignUp("alice")
	is.True(errors.Is(tx.CreateAPIKey(t.Context(), svc.APIKey{ID: key.ID}), svc.ErrExists))
	is.True(errors.Is(tx.DeleteSource(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "none"}), svc.ErrNotFound))
	half := svc.Bundle{Users: []svc.User{{ID: "half"}}}
	broken := svc.Bundle{Users: half.Users, Groups: []svc.Group{{ID: "g", Members: []string{"nobody"}}}}
	refused := errors.New("refused")
	change := func(ctx context.Context, change func() (svc.AccessWrite, error)) (err error) {
		defer func() {
			if failed := recover(); failed != nil {
				err = failed.(error)
			}
		}()
		return tx.ChangeAccess(ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return change() })
	}
	is.True(errors.Is(change(t.Context(), func() (svc.AccessWrite, error) { return half.Write(), refused }), refused))
	is.True(errors.Is(change(t.Context(), func() (svc.AccessWrite, error) { panic(refused) }), refused))
	is.True(change(t.Context(), func() (svc.AccessWrite, error) { return broken.Write(), nil }) != nil) // the database refuses a statement
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	is.True(errors.Is(change(ended, func() (svc.AccessWrite, error) { return half.Write(), nil }), context.Canceled))
	is.True(tx.AwaitChange(t.Context(), 0) != nil)
	_, err := tx.ClaimEvents(t.Context(), time.Now(), time.Now(), 1)
	is.True(err != nil)

	h.ok(tx.Exec("INSERT INTO accounts (id) VALUES ('bob')"))
	h.ok(AddUsers(t.Context(), tx, "bob"))
	_, err = ReadUser(t.Context(), tx, "bob")
	h.ok(err)
	h.ok(tx.Commit())
	is.True(h.Accepted(key))
	is.Equal(h.Count("accounts"), 2)
	_, err = ReadUser(t.Context(), h.Store, "half")
	is.True(errors.Is(err, svc.ErrNotFound))
	is.True(AddUsers(t.Context(), tx, "late") != nil) // it ended with the transaction
	_, err = ReadUser(t.Context(), h.Store, "late")
	is.True(errors.Is(err, svc.ErrNotFound))
}

// A transaction that has ended without the host's knowledge takes no write, as none would be undone.
func refusesEnded(t *testing.T, h Host) {
	is := checks{t}
	tx, key := h.SignUp("alice")
	h.ok(tx.Exec("ROLLBACK"))
	for _, err := range writes(t.Context(), tx) {
		is.True(err != nil)
	}
	holder := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	_, err := h.Service.WithTx(tx).Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{})
	is.True(err != nil)
	_ = tx.Rollback()
	is.True(!h.Accepted(key))
	for _, rows := range written {
		is.Equal(h.Count(rows), 0)
	}
	h.ok(WriteAll(t.Context(), h.Store)) // nothing is in the way
}

// A removal is undone with its transaction.
func removes(t *testing.T, h Host) {
	is := checks{t}
	source := svc.SourceKey{Scope: svc.ScopePersonal, Owner: "alice", Name: "s"}
	h.ok(h.Store.CreateSource(t.Context(), svc.Source{SourceKey: source}))
	before := Generation(t, h.Store)
	for _, end := range []func(HostTx) error{
		func(tx HostTx) error { return tx.Rollback() }, func(tx HostTx) error { return tx.Commit() },
	} {
		_, err := h.Store.Source(t.Context(), source)
		h.ok(err)
		tx := h.Begin()
		var gone []svc.Target
		h.ok(tx.ChangeAccess(t.Context(), svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) {
			remove, of := svc.AccessNames{Users: []string{"alice"}}, []svc.Target{{Kind: event.TargetUser, ID: "alice"}}
			return svc.AccessWrite{Remove: remove, Targets: of, Gone: func(g []svc.Target) { gone = g }}, nil
		}))
		is.Equal(gone, []svc.Target{source.Target()})
		_, err = tx.Source(t.Context(), source)
		is.True(errors.Is(err, svc.ErrNotFound))
		h.ok(end(tx))
	}
	_, err := h.Store.Source(t.Context(), source)
	is.True(errors.Is(err, svc.ErrNotFound))
	changes, err := h.Store.Changes(t.Context(), before)
	h.ok(err)
	is.Equal(changes.Targets, []svc.Target{{Kind: event.TargetUser, ID: "alice"}, source.Target()})
}
