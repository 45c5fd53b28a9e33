package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlstore"
)

func at(micro int64) time.Time { return time.UnixMicro(micro).UTC() }

func disable(key *svc.APIKey) (bool, error) {
	key.Disabled = !key.Disabled
	return true, nil
}

type addedKey = batching.Key[svc.APIKey, svc.Event]

// keyBatch is a batch whose keys are known before.
type keyBatch struct {
	Keys    []addedKey
	Most    int
	ValidAt time.Time
	Audit   bool
}

func (k keyBatch) taken() batching.Keys[svc.APIKey, svc.Event] {
	return batching.Keys[svc.APIKey, svc.Event]{
		Take: func() []addedKey { return k.Keys }, Most: k.Most, ValidAt: k.ValidAt, Audit: k.Audit,
	}
}

func added(id string, of svc.Identity) addedKey {
	key := svc.APIKey{ID: id, Holder: of, Prefix: "p", CreatedAt: at(1)}
	return addedKey{Key: key, Event: svc.Event{
		ID: uuid.Must(uuid.NewV7()), Time: at(1), Actor: svc.Identity{Kind: svc.KindHost},
		Action: event.APIKeyIssued, Target: key.Target(),
	}}
}

// batches adds keys to a store.
type batches struct {
	*testing.T
	*postgres.Store
}

// add expects that of some keys those with these ids are added, and no others. Digits at the end of an id do not count.
func (b batches) add(what string, want string, k keyBatch) {
	b.Helper()
	if k.Most == 0 {
		k.Most = 9
	}
	done, err := b.AddAPIKeys(b.Context(), k.taken())
	if err != nil || len(done) != len(k.Keys) {
		b.Errorf("%s: %v, %v", what, done, err)
		return
	}
	var ids []string
	for i, key := range k.Keys {
		id := key.Key.ID
		found, err := b.Access(b.Context(), svc.AccessQuery{KeyID: id})
		if is.New(b.T).NoErr(err); done[i] != (found.Key != nil) {
			b.Errorf("%s: key %s is there: %v, said to be added: %v", what, id, !done[i], done[i])
		}
		if done[i] {
			ids = append(ids, strings.TrimRight(id, "0123456789"))
		}
	}
	if got := strings.Join(ids, " "); got != want {
		b.Errorf("%s: added %q, want %q", what, got, want)
	}
}

func inBatches(t *testing.T) batches {
	t.Parallel()
	return batches{t, open(t, migrated(t), postgres.Options{})}
}

func TestAddedKeysAreWhole(t *testing.T) {
	is, b := is.New(t), inBatches(t)
	text := "a \"description\" \\ \u2028 ✓"
	full, bare := added("full", svc.Identity{Kind: svc.KindServiceAccount, ID: "a b\"✓"}), added("bare", holder)
	k := &full.Key
	k.Description, k.ExpiresAt, k.Disabled, k.ScopingPolicyID = &text, at(5), true, "narrow"
	k.Hash, k.Pepper, k.Seal = []byte{0, 1, 0xff}, "pepper", []byte{}
	k.Rate, k.SuccessorID = svc.Rate{PerSecond: 0.1, Burst: 3}, "bare"
	before := must(b.Generation(t.Context()))
	b.add("both", "full bare", keyBatch{Keys: []addedKey{full, bare}})
	for _, want := range []svc.APIKey{full.Key, bare.Key} {
		other := want
		other.ID += " alone"
		is.NoErr(b.CreateAPIKey(t.Context(), other))
		for _, want := range []svc.APIKey{want, other} {
			is.Equal(*must(b.Access(t.Context(), svc.AccessQuery{KeyID: want.ID})).Key, want)
		}
	}
	is.Equal(must(b.Generation(t.Context())), before) // it is no mutation
	b.add("none", "", keyBatch{})
}

func TestAddedKeysAreNeverTooMany(t *testing.T) {
	is, b := is.New(t), inBatches(t)
	for i, micro := range []int64{10, 20, 0} {
		key := added(fmt.Sprint("old", i), holder).Key
		if micro > 0 {
			key.ExpiresAt = at(micro)
		}
		is.NoErr(b.CreateAPIKey(t.Context(), key))
	}
	bot := svc.Identity{Kind: svc.KindServiceAccount, ID: holder.ID}
	n := 0
	some := func(most int, validAt time.Time) keyBatch {
		n++
		name := func(id string) string { return fmt.Sprint(id, n) }
		return keyBatch{Most: most, ValidAt: validAt, Keys: []addedKey{
			added(name("a"), holder), added(name("bot"), bot), added(name("b"), holder), added(name("c"), holder),
		}}
	}
	b.add("a full holder", "bot", some(3, time.Time{}))
	b.add("one that is full by then", "a bot", some(4, time.Time{}))
	b.add("expired keys", "", some(2, at(10)))
	b.add("fewer valid keys", "a bot", some(4, at(10)))
	b.add("still fewer", "a bot", some(4, at(20)))
	is.NoErr(b.ChangeAPIKey(t.Context(), holder, "old2", func(key *svc.APIKey) (bool, error) {
		key.RevokedAt = at(1)
		return true, nil
	}))
	b.add("a revoked key", "a bot", some(6, time.Time{}))
	b.add("keys that are valid today", "a bot b c", some(9, time.Now()))
}

// Of keys added by several callers at once, through two stores and as other transactions do, no
// holder gets more than are allowed.
func TestAddedKeysAreNeverTooManyAtOnce(t *testing.T) {
	long(t, "batches up to the limit")
	const most, holders = 5, 3
	is, url := is.New(t), migrated(t)
	stores := []*postgres.Store{open(t, url, postgres.Options{}), open(t, url, postgres.Options{})}
	var wait sync.WaitGroup
	for caller := range 12 {
		wait.Go(func() {
			store := stores[caller%2]
			for n := range 12 {
				of := svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint((caller + n) % holders)}
				id := fmt.Sprint(caller, "-", n)
				if caller%3 > 0 {
					must(store.AddAPIKeys(t.Context(), keyBatch{Most: most, Keys: []addedKey{
						added(id, of), added(id+"x", of), added(id+"y", svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(n % holders)}),
					}}.taken()))
					continue
				}
				is.NoErr(store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
					if err := tx.Lock(ctx, svc.Locks{Holder: of}); err != nil {
						return err
					}
					now, err := tx.Access(ctx, svc.AccessQuery{KeysOf: of, Most: most})
					if err != nil || now.Keys == most {
						return err
					}
					return tx.CreateAPIKey(ctx, svc.APIKey{ID: id, Holder: of})
				}))
			}
		})
	}
	wait.Wait()
	for n := range holders {
		of := svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(n)}
		keys := must(stores[0].APIKeys(t.Context(), svc.APIKeyPage{Holder: of, KeyQuery: svc.KeyQuery{Limit: 100}}))
		is.Equal(len(keys), most)
	}
}

// held is a transaction that has called something and stays open until release.
func (b batches) held(do func(ctx context.Context, tx svc.FullStore) error) (release func()) {
	b.Helper()
	tx := must(b.DB().BeginTx(b.Context(), nil))
	is.New(b.T).NoErr(do(b.Context(), sqlstore.Tx(tx, b.Dialect())))
	return func() {
		b.Helper()
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			b.Error(err)
		}
	}
}

// A key is added beside others whose holder, caller's key or access others have locked: they are
// not added, and nobody waits for them.
func TestAddedKeysDoNotWait(t *testing.T) {
	is, b := is.New(t), inBatches(t)
	bob := svc.Identity{Kind: svc.KindUser, ID: "bob"}
	for _, id := range []string{"caller", "other"} {
		is.NoErr(b.CreateAPIKey(t.Context(), added(id, bob).Key))
	}
	is.NoErr(b.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		return errors.Join(tx.Lock(ctx, svc.Locks{Holder: holder}), tx.CreateAPIKey(ctx, svc.APIKey{ID: "first", Holder: holder}))
	}))
	n := 0
	some := func() keyBatch {
		n++
		id := func(name string) string { return fmt.Sprint(name, n) }
		since := must(b.Generation(t.Context()))
		relies := added(id("relies"), bob)
		relies.Since, relies.Caller = since, "caller"
		return keyBatch{Most: 99, Keys: []addedKey{added(id("host"), holder), relies, added(id("free"), bob)}}
	}
	is.NoErr(b.CreateTemplate(t.Context(), svc.Template{TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: "t"}}))
	for _, x := range []struct {
		what string
		hold func(ctx context.Context, tx svc.FullStore) error
		want string
	}{
		{"nothing", func(context.Context, svc.FullStore) error { return nil }, "host relies free"},
		{"a holder", func(ctx context.Context, tx svc.FullStore) error {
			return tx.Lock(ctx, svc.Locks{Holder: holder})
		}, "relies free"},
		{"the caller's key", func(ctx context.Context, tx svc.FullStore) error {
			return tx.ChangeAPIKey(ctx, bob, "caller", disable)
		}, "host free"},
		{"who relies on it", func(ctx context.Context, tx svc.FullStore) error {
			return tx.Lock(ctx, svc.Locks{RelyOnAccess: true, RelyOnKey: "caller"})
		}, "host relies free"},
		{"another key", func(ctx context.Context, tx svc.FullStore) error {
			return tx.ChangeAPIKey(ctx, bob, "other", disable)
		}, "host relies free"},
		{"access", func(ctx context.Context, tx svc.FullStore) error {
			return tx.Lock(ctx, svc.Locks{ChangeAccess: true})
		}, ""},
	} {
		release := b.held(x.hold)
		b.add(x.what, x.want, some())
		release()
	}
	// Nobody has this holder yet.
	carol := svc.Identity{Kind: svc.KindUser, ID: "carol"}
	release := b.held(func(ctx context.Context, tx svc.FullStore) error { return tx.Lock(ctx, svc.Locks{Holder: carol}) })
	b.add("a new holder", "", keyBatch{Most: 99, Keys: []addedKey{added("for carol", carol), added("for others", bob)}})
	release()
	release = b.held(func(ctx context.Context, tx svc.FullStore) error { return tx.Lock(ctx, svc.Locks{ChangeAccess: true}) })
	b.add("access, on which none relies", "by the host", keyBatch{Most: 99, Keys: []addedKey{added("by the host", bob)}})
	release()
}

// What has changed since the caller was judged decides.
func TestAddedKeysRelyOnWhatWasJudged(t *testing.T) {
	is, b := is.New(t), inBatches(t)
	ctx := t.Context()
	for _, id := range []string{"caller", "other"} {
		is.NoErr(b.CreateAPIKey(ctx, added(id, holder).Key))
	}
	template := svc.TemplateKey{Scope: svc.ScopeServer, ID: "t"}
	is.NoErr(b.CreateTemplate(ctx, svc.Template{TemplateKey: svc.TemplateKey{Scope: svc.ScopeServer, ID: "first"}}))
	for i, x := range []struct {
		what   string
		happen func() error
		stands bool
	}{
		{"nothing", func() error { return nil }, true},
		{"a template", func() error { return b.CreateTemplate(ctx, svc.Template{TemplateKey: template}) }, true},
		{"a source", func() error {
			return b.CreateSource(ctx, svc.Source{SourceKey: svc.SourceKey{Scope: svc.ScopeServer, Name: "s"}})
		}, true},
		{"another key", func() error { return b.ChangeAPIKey(ctx, holder, "other", disable) }, true},
		{"many others", func() (err error) {
			for range 100 {
				err = errors.Join(err, b.ChangeAPIKey(ctx, holder, "other", disable))
			}
			return err
		}, true},
		{"the caller's key", func() error { return b.ChangeAPIKey(ctx, holder, "caller", disable) }, false},
		{"a user", func() error {
			return changeAccess(ctx, b, svc.AccessNames{}, svc.Bundle{Users: []svc.User{{ID: "u"}}}.Write())
		}, false},
		{"one of several", func() error {
			return errors.Join(b.DeleteTemplate(ctx, template, nil), b.ChangeAPIKey(ctx, holder, "caller", disable))
		}, false},
	} {
		changes := must(b.Changes(ctx, 0))
		is.NoErr(x.happen())
		key, host := added(fmt.Sprint("relies", i), holder), added(fmt.Sprint("host", i), holder)
		key.Since, key.Caller = changes.Generation, "caller"
		want := "host"
		if x.stands {
			want = "relies host"
		}
		b.add(x.what, want, keyBatch{Most: 99, Keys: []addedKey{key, host}})
	}
	changes := must(b.Changes(ctx, 0))
	earliest, now := added("judged before a user changed", holder), added("judged now", holder)
	earliest.Since, now.Since = 1, changes.Generation
	b.add("the earliest decides", "", keyBatch{Most: 99, Keys: []addedKey{earliest, now}})
	later, unknown := added("later", holder), added("unknown", holder)
	later.Since, unknown.Since = changes.Generation+1, 1
	b.add("a greater generation", "", keyBatch{Most: 99, Keys: []addedKey{later}})
	must(b.DB().ExecContext(ctx, `DELETE FROM svc_changefeed`))
	b.add("a forgotten one", "", keyBatch{Most: 99, Keys: []addedKey{unknown}})
	must(b.RevokeAPIKeys(ctx, holder, at(1), 99))
	changes = must(b.Changes(ctx, 0))
	revoked := added("by a revoked key", holder)
	revoked.Since, revoked.Caller = changes.Generation, "caller"
	b.add("a revoked key", "", keyBatch{Keys: []addedKey{revoked}})
}

// The event of a key is queued with it, or neither is there.
func TestAddedKeysHaveTheirRecords(t *testing.T) {
	is, b := is.New(t), inBatches(t)
	queued := func() int {
		return sqltest.Value[int](t, b.DB(), `SELECT COALESCE(SUM(jsonb_array_length(CAST(events AS JSONB))), 0) FROM svc_audit_queue`)
	}
	keys := []addedKey{added("one", holder), added("two", holder), added("three", holder)}
	b.add("without records", "one two", keyBatch{Most: 2, Keys: keys})
	is.Equal(queued(), 0)
	keys = []addedKey{added("four", holder), added("five", svc.Identity{Kind: svc.KindUser, ID: "bob"})}
	keys[1].Event.Was, keys[1].Event.Is = nil, []byte(`{"a": 1}`)
	b.add("with records", "five", keyBatch{Most: 2, Keys: keys, Audit: true})
	b.add("for nobody", "", keyBatch{Most: 2, Keys: keys[:1], Audit: true})
	is.Equal(queued(), 1)
	var chained []svc.Event
	must(b.ChainAudit(t.Context(), func(_ svc.AuditRecord, events []svc.Event) (records []svc.AuditRecord) {
		chained = slices.Clone(events)
		for i, e := range events {
			records = append(records, svc.AuditRecord{Number: int64(i + 1), Event: e, Hash: []byte{1}})
		}
		return records
	}))
	is.Equal(chained, []svc.Event{keys[1].Event})

	_, err := b.AddAPIKeys(t.Context(), keyBatch{Most: 9, Audit: true, Keys: []addedKey{
		added("six", holder), added("five", svc.Identity{Kind: svc.KindUser, ID: "carol"}),
	}}.taken())
	is.True(errors.Is(err, svc.ErrExists))
	is.True(must(b.Access(t.Context(), svc.AccessQuery{KeyID: "six"})).Key == nil) // all or nothing
	is.Equal(queued(), 0)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = b.AddAPIKeys(ended, keyBatch{Most: 9, Keys: []addedKey{added("seven", holder)}}.taken())
	is.True(errors.Is(err, context.Canceled))
}

// A batch that runs again says what the last run has added: here nothing, as the place is taken in the meantime.
func TestAddedKeysOfASecondRun(t *testing.T) {
	longtest.Test(t, "a batch that runs twice")
	is, b := is.New(t), inBatches(t)
	ctx := t.Context()
	for _, statement := range []string{
		`CREATE SEQUENCE runs`, `CREATE SEQUENCE goes_on`,
		`CREATE FUNCTION fails_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('runs') = 1 THEN
				WHILE NOT (SELECT is_called FROM goes_on) LOOP PERFORM pg_sleep(0.01); END LOOP;
				RAISE EXCEPTION 'again' USING ERRCODE = '40001';
			END IF;
			RETURN NULL;
		END $$`,
		`CREATE CONSTRAINT TRIGGER once AFTER INSERT ON svc_api_keys DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION fails_once()`,
	} {
		must(b.DB().ExecContext(ctx, statement))
	}
	batch, takes := keyBatch{Most: 1, Keys: []addedKey{added("k", holder)}}.taken(), 0
	keys := batch.Take
	batch.Take = func() []addedKey { takes++; return keys() }
	type outcome struct {
		added []bool
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		added, err := b.AddAPIKeys(context.Background(), batch)
		done <- outcome{added, err}
	}()
	for !sqltest.Value[bool](t, b.DB(), `SELECT is_called FROM runs`) {
	}
	is.NoErr(b.CreateAPIKey(ctx, added("other", holder).Key))
	must(b.DB().ExecContext(ctx, `SELECT nextval('goes_on')`))
	is.Equal(<-done, outcome{[]bool{false}, nil})
	is.True(must(b.Access(ctx, svc.AccessQuery{KeyID: "k"})).Key == nil)
	is.Equal(takes, 1)
}
