package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/batching"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

var holder = svc.Identity{Kind: svc.KindUser, ID: "alice"}

// relying is a transaction that relies on access and on the key "k".
type relying struct {
	held chan struct{} // closed when it has its locks
	end  func()
	done chan error
}

func rely(store *postgres.Store) relying {
	end, r := make(chan struct{}), relying{held: make(chan struct{}), done: make(chan error, 1)}
	r.end = func() { close(end) }
	go func() {
		r.done <- store.Atomically(context.Background(), func(ctx context.Context, tx svc.Store) error {
			locks := svc.Locks{RelyOnAccess: true, RelyOnKey: "k"}
			if err := tx.Lock(ctx, locks); err != nil {
				return err
			}
			if _, err := tx.Access(ctx, svc.AccessQuery{KeyID: "k"}); err != nil {
				return err
			}
			close(r.held)
			<-end
			return nil
		})
	}()
	return r
}

// awaitHeld returns when the transaction has its locks.
func (r relying) awaitHeld(t *testing.T) {
	t.Helper()
	select {
	case <-r.held:
	case err := <-r.done:
		t.Fatalf("it has ended without its locks: %v", err)
	}
}

// Transactions that rely on one key overlap without a gap. A change of the key still comes between.
func TestChangeOfAKeyComesBetween(t *testing.T) {
	longtest.Parallel(t, "each change of a key that comes between")
	for name, change := range map[string]func(ctx context.Context, store *postgres.Store) error{
		"one": func(ctx context.Context, store *postgres.Store) error {
			return store.ChangeAPIKey(ctx, holder, "k", func(key *svc.APIKey) (bool, error) { return true, nil })
		},
		"all": func(ctx context.Context, store *postgres.Store) error {
			return failure(store.RevokeAPIKeys(ctx, holder, time.UnixMicro(1), 10))
		},
		"use": func(ctx context.Context, store *postgres.Store) error {
			return store.UseAPIKeys(ctx, []svc.LastUse{{ID: "k", At: time.UnixMicro(1)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			url := migrated(t)
			db, store := pgtest.Open(t, url), open(t, url, postgres.Options{})
			is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: "k", Holder: holder}))
			last := rely(store)
			last.awaitHeld(t)
			changed := make(chan error, 1)
			go func() { changed <- change(context.Background(), store) }()
			awaitLock(t, db)
			for over := false; !over; {
				next := rely(store)
				for passed := false; !passed && !over; {
					select {
					case err := <-changed:
						is.NoErr(err)
						over = true
					case <-next.held:
						passed = true
					case err := <-next.done:
						t.Fatalf("it has ended without its locks: %v", err)
					case <-time.After(10 * time.Millisecond):
						passed = locksAwaited(t, db) >= 3 // the change, the lock on access, and next
					}
				}
				last.end()
				is.NoErr(<-last.done)
				last = next
			}
			last.end()
			is.NoErr(<-last.done)
		})
	}
}

// Of two transactions that change a key on which both rely, one may have to run again.
func TestTwoThatRelyAndChangeBothEnd(t *testing.T) {
	is := long(t, "two that rely and change")
	store := open(t, migrated(t), postgres.Options{})
	is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: "k", Holder: holder}))
	ended := make(chan error, 2)
	var rely atomic.Int32
	for range 2 {
		go func() {
			ended <- store.Atomically(context.Background(), func(ctx context.Context, tx svc.Store) error {
				if err := tx.Lock(ctx, svc.Locks{RelyOnKey: "k"}); err != nil {
					return err
				}
				if _, err := tx.Access(ctx, svc.AccessQuery{KeyID: "k"}); err != nil {
					return err
				}
				rely.Add(1)
				expect.Soon(t, "the other one does not rely", func() bool { return rely.Load() >= 2 })
				return tx.ChangeAPIKey(ctx, holder, "k", func(*svc.APIKey) (bool, error) { return true, nil })
			})
		}()
	}
	is.NoErr(<-ended)
	is.NoErr(<-ended)
}

// A change of access that waits too long for another says so.
func TestChangeOfAccessSaysWhatItWaitsFor(t *testing.T) {
	is := long(t, "what a change of access waits for")
	h := newHost(t, open(t, migrated(t), postgres.Options{Timeout: limited}))
	tx := h.Begin()
	is.NoErr(sqltest.AddUsers(t.Context(), tx, "first"))
	said := ""
	for range 10 { // where the machine is slow, the Store's own limit may come first
		err := h.Service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "second"}}})
		refused, ok := errors.AsType[*svc.Error](err)
		is.True(ok)
		is.Equal(refused.Code, svc.CodeUnavailable)
		if said = refused.Message; said == "another transaction is changing access: try again" {
			break
		}
	}
	is.Equal(said, "another transaction is changing access: try again")
	is.NoErr(tx.Commit())
	is.NoErr(h.Service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "second"}}}))
}

// While a transaction of the host is open, others write at once what it has not written. Only a change
// of access waits, and delays nobody else.
func TestHostsTransactionDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, writes := range map[string]func(ctx context.Context, inside *svc.Service, by svc.Principal) error{
		"a key": func(context.Context, *svc.Service, svc.Principal) error { return nil },
		"a key, a user and a template": func(ctx context.Context, inside *svc.Service, by svc.Principal) error {
			_, err := inside.Users.Create(ctx, by, svc.User{ID: "new"})
			name := "patched"
			_, patched := inside.Templates.Patch(ctx, by, "written", svc.TemplatePatch{Name: &name})
			return errors.Join(err, patched)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a key" {
				longtest.Test(t, "a part of the other transaction")
			}
			eachKind(t, func(t *testing.T, h host) {
				is := is.New(t)
				by := h.administrator()
				is.NoErr(sqltest.CreateTemplate(t.Context(), h.Service, "written"))
				is.NoErr(sqltest.CreateTemplate(t.Context(), h.Service, "other"))
				old := svc.StoredAnswer{Key: []byte("old"), Request: []byte("old"), Data: []byte("old"), ExpiresAt: time.UnixMicro(1)}
				is.NoErr(h.Store.KeepAnswer(t.Context(), old, time.UnixMicro(0))) // the next ones delete it
				tx := h.Begin()
				inside := h.Service.WithTx(tx)
				key := must(inside.Keys.Issue(t.Context(), by, holder, svc.NewAPIKey{IdempotencyKey: "inside"}))
				is.NoErr(writes(t.Context(), inside, by))
				h.writesOthers(by, "one")
				changed := make(chan error, 1)
				go func() {
					changed <- h.Service.Access.Apply(context.Background(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "late"}}})
				}()
				awaitLock(t, h.DB)
				h.writesOthers(by, "two")
				is.NoErr(tx.Commit())
				is.True(h.Accepted(key))
				if err := <-changed; err != nil { // on a busy machine half a minute may be over
					is.Equal(svc.ErrorCode(err), svc.CodeUnavailable)
					is.NoErr(h.Service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "late"}}}))
				}
			}, "pool")
		})
	}
}

// administrator returns a caller by an API key, who may do everything.
func (h host) administrator() svc.Principal {
	h.T.Helper()
	go func() { // nobody looks at the events
		for h.T.Context().Err() == nil {
			<-h.Events
		}
	}()
	is := is.New(h.T)
	admin := svc.Identity{Kind: svc.KindUser, ID: "admin"}
	is.NoErr(h.Service.Access.Apply(h.T.Context(), svc.Host, svc.Bundle{
		Users: []svc.User{{ID: "admin"}, {ID: holder.ID}, {ID: "bob"}},
		Attachments: []svc.Attachment{
			{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "admin"}},
			{PolicyID: svc.PolicyTemplateAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "admin"}},
		},
	}))
	issued := must(h.Service.Keys.Issue(h.T.Context(), svc.Host, admin, svc.NewAPIKey{}))
	return must(h.Service.Authenticate(h.T.Context(), string(issued.Key)))
}

// writesOthers makes one write of each kind that nobody else makes.
func (h host) writesOthers(by svc.Principal, id string) {
	h.T.Helper()
	is := is.New(h.T)
	ctx, cancel := context.WithTimeout(h.T.Context(), time.Minute)
	defer cancel()
	issued := must(h.Service.Keys.Issue(ctx, by, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{}))
	is.True(h.Accepted(issued))
	must(h.Service.Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{IdempotencyKey: id}))
	is.NoErr(h.Service.Keys.Revoke(ctx, by, issued.Holder, issued.ID))
	is.True(!h.Accepted(issued))
	must(h.Service.Templates.Patch(ctx, by, "other", svc.TemplatePatch{Name: &id}))
	is.NoErr(sqltest.CreateTemplate(ctx, h.Service, id))
	is.True(must(h.Service.May(ctx, by, action.UsersRead, "*")))
}

// A user without a row relies on having none. A row that makes it inactive comes before or after.
func TestNewRowOfAnInactiveUserComesBetween(t *testing.T) {
	longtest.Parallel(t, "an inactive user whose row comes between")
	for _, inactive := range []bool{false, true} {
		t.Run(fmt.Sprint(inactive), func(t *testing.T) {
			is := parallel(t)
			store := open(t, migrated(t), postgres.Options{})
			planted := intercept.NewPlanted(store)
			issuing, creating := sqltest.Serve(t, svc.Config{Store: planted}), sqltest.Serve(t, svc.Config{Store: store})
			reached, goOn := make(chan struct{}), make(chan struct{})
			planted.Plant(func(method string) error {
				if method == "CreateAPIKey" {
					close(reached)
					<-goOn
				}
				return nil
			})
			issued, created := make(chan error, 1), make(chan error, 1)
			go func() {
				by := svc.Principal{Kind: svc.KindUser, ID: "bob"}
				_, err := issuing.Keys.Issue(context.Background(), by, svc.Me, svc.NewAPIKey{})
				issued <- err
			}()
			select {
			case <-reached:
			case err := <-issued:
				t.Fatalf("it has ended before it creates a key: %v", err)
			}
			go func() {
				_, err := creating.Users.Create(context.Background(), svc.Host, svc.User{ID: "bob", Inactive: inactive})
				created <- err
			}()
			if inactive {
				awaitLock(t, store.DB())
			} else {
				is.NoErr(<-created)
			}
			close(goOn)
			is.NoErr(<-issued)
			if inactive {
				is.NoErr(<-created)
			}
		})
	}
}

type countedBatches struct {
	*postgres.Store
	batches, keys, added atomic.Int64
}

func (c *countedBatches) AddAPIKeys(ctx context.Context, b batching.Keys[svc.APIKey, svc.Event]) ([]bool, error) {
	added, err := c.Store.AddAPIKeys(ctx, b)
	c.batches.Add(1)
	c.keys.Add(int64(len(added)))
	for _, is := range added {
		if is {
			c.added.Add(1)
		}
	}
	return added, err
}

// Callers that issue at once share transactions, while keys are revoked and others have too many. The
// host, a caller with its own key and an administrator get keys that work, and each has its record.
func TestIssuersShareTransactions(t *testing.T) {
	longtest.Parallel(t, "how issuers share transactions")
	const callers, each, most = 24, 6, 8
	is, ctx := is.New(t), t.Context()
	store := &countedBatches{Store: open(t, migrated(t), postgres.Options{})}
	service := sqltest.Serve(t, svc.Config{Store: store, Events: svc.EventConfig{Keep: true}, Keys: svc.KeyConfig{MaxPerHolder: most}})
	admin := svc.Attachment{PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "admin"}}
	users := []svc.User{{ID: "admin"}}
	for i := range callers {
		users = append(users, svc.User{ID: fmt.Sprint("u", i)})
	}
	is.NoErr(service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: users, Attachments: []svc.Attachment{admin}}))
	caller := func(id string) svc.Principal {
		key := must(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: id}, svc.NewAPIKey{}))
		return must(service.Authenticate(ctx, string(key.Key)))
	}
	by := caller("admin")
	full := svc.Identity{Kind: svc.KindUser, ID: "full"}
	for range most {
		must(service.Keys.Issue(ctx, svc.Host, full, svc.NewAPIKey{}))
	}
	var own []svc.Principal
	for i := range callers {
		own = append(own, caller(fmt.Sprint("u", i)))
	}
	before := store.added.Load()
	var wait sync.WaitGroup
	for i, me := range own {
		wait.Go(func() {
			for n := range each {
				who, holder := me, svc.Me
				switch n % 3 {
				case 1:
					who, holder = svc.Host, svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint("new", i, n)}
				case 2:
					who, holder = by, me.Identity()
				}
				issued := must(service.Keys.Issue(ctx, who, holder, svc.NewAPIKey{}))
				must(service.Authenticate(ctx, string(issued.Key)))
				if n == each-1 {
					is.NoErr(service.Keys.Revoke(ctx, by, issued.Holder, issued.ID))
				}
				is.Equal(svc.ErrorCode(failure(service.Keys.Issue(ctx, by, full, svc.NewAPIKey{}))), svc.CodeLimit)
			}
		})
	}
	wait.Wait()
	is.True(must(service.Audit.Verify(ctx, svc.Host)).Fault == nil)
	var records int
	for r, err := range service.Audit.Records(ctx, svc.Host, svc.AuditQuery{}) {
		if is.NoErr(err); r.Action == event.APIKeyIssued {
			is.True(r.Actor.Kind == svc.KindHost || r.ActorKey != "")
			records++
		}
	}
	is.Equal(records, 1+most+callers+callers*each)
	t.Logf("%d keys in %d batches, %d of them added there", store.keys.Load(), store.batches.Load(), store.added.Load())
	is.True(store.added.Load()-before > callers) // of callers*each; others were issued alone
	is.True(store.batches.Load() < store.keys.Load())
}

// Callers wait for a connection: those that leave leave at once, and a key that has expired in the
// meantime issues nothing.
func TestIssuersWaitForAConnection(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	store := open(t, migrated(t), postgres.Options{MaxOpen: 1})
	var now atomic.Int64
	service := sqltest.Serve(t, svc.Config{
		Store: store, Now: func() time.Time { return time.Unix(now.Load(), 0) }, Keys: svc.KeyConfig{IgnoreExpired: true},
	})
	var callers []svc.Principal
	for _, expiry := range []int64{1, 1000, 1000} {
		in := svc.NewAPIKey{ExpiresAt: time.Unix(expiry, 0)}
		key := must(service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(len(callers))}, in))
		callers = append(callers, must(service.Authenticate(ctx, string(key.Key))))
	}
	only := must(store.DB().Conn(ctx))
	leaving, leave := context.WithCancel(ctx)
	issued := make([]chan error, len(callers))
	for i, by := range callers {
		issued[i] = make(chan error, 1)
		ctx := ctx
		if i == 2 {
			ctx = leaving
		}
		go func() {
			_, err := service.Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{})
			issued[i] <- err
		}()
	}
	for store.DB().Stats().WaitCount == 0 { // one of them waits, and does the batch
		time.Sleep(time.Millisecond)
	}
	leave()
	is.True(<-issued[2] != nil)
	now.Store(10)
	is.NoErr(only.Close())
	is.Equal(svc.ErrorCode(<-issued[0]), svc.CodeUnauthenticated)
	is.NoErr(<-issued[1])
}
