package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
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

// Transactions that rely on one key overlap without a gap. A change of the key still comes between.
func TestChangeOfAKeyComesBetween(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, store *postgres.Store) error{
		"one": func(ctx context.Context, store *postgres.Store) error {
			return store.ChangeAPIKey(ctx, holder, "k", func(key *svc.APIKey) (bool, error) { return true, nil })
		},
		"all": func(ctx context.Context, store *postgres.Store) error {
			_, err := store.RevokeAPIKeys(ctx, holder, time.UnixMicro(1), 10)
			return err
		},
		"use": func(ctx context.Context, store *postgres.Store) error {
			return store.UseAPIKeys(ctx, []svc.LastUse{{ID: "k", At: time.UnixMicro(1)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			store := open(t, migrated(t), postgres.Options{})
			is.NoErr(store.CreateAPIKey(t.Context(), svc.APIKey{ID: "k", Holder: holder}))
			last := rely(store)
			<-last.held
			changed := make(chan error, 1)
			go func() { changed <- change(context.Background(), store) }()
			awaitLock(t, store)
			for over := false; !over; {
				next := rely(store)
				for passed := false; !passed && !over; {
					select {
					case err := <-changed:
						is.NoErr(err)
						over = true
					case <-next.held:
						passed = true
					case <-time.After(10 * time.Millisecond):
						passed = locksAwaited(t, store) >= 3 // the change, the lock on access, and next
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
	t.Parallel()
	is := is.New(t)
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
				for deadline := time.Now().Add(time.Minute); rely.Load() < 2 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				return tx.ChangeAPIKey(ctx, holder, "k", func(*svc.APIKey) (bool, error) { return true, nil })
			})
		}()
	}
	is.NoErr(<-ended)
	is.NoErr(<-ended)
}

// A change of access that waits too long for another says so.
func TestChangeOfAccessSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := newHost(t, open(t, migrated(t), postgres.Options{}))
	tx := h.begin()
	is.NoErr(addUsers(t.Context(), tx, "first"))
	err := h.service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "second"}}})
	refused, ok := errors.AsType[*svc.Error](err)
	is.True(ok)
	is.Equal(refused.Code, svc.CodeUnavailable)
	is.Equal(refused.Message, "another transaction is changing access: try again")
	is.NoErr(tx.commit())
	is.NoErr(h.service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "second"}}}))
}

// While a transaction of the host has issued a key, others issue for other holders.
func TestHostsIssueDelaysNoOther(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, h host) {
		is := is.New(t)
		tx, key := h.signUp("alice")
		issued, err := h.service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "bob"}, svc.NewAPIKey{})
		is.NoErr(err)
		by, err := h.service.Authenticate(t.Context(), string(issued.Key))
		is.NoErr(err)
		_, err = h.service.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{})
		is.NoErr(err)
		is.NoErr(h.service.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "carol"}}}))
		is.NoErr(h.service.Keys.Revoke(t.Context(), svc.Host, issued.Holder, issued.ID))
		is.NoErr(tx.commit())
		is.True(h.accepted(key))
	})
}
