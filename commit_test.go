package svc_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/intercept"
)

func TestSourcesInATransaction(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	for _, name := range []string{"b", "c", "d"} {
		url := "https://example.com/" + name
		h.market.put(url, "x", content("X", "1"))
		must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: url}))
		must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: name, AliasID: &name}))
	}
	var calls atomic.Int32
	inTx := h.WithTx(around(h.store, func(call intercept.Call) error {
		if call.Method == "Source" || call.Method == "Installations" {
			is.Equal(calls.Add(1), int32(1)) // two calls at once
			time.Sleep(time.Millisecond)
			defer calls.Add(-1)
		}
		return call.Do()
	}))
	is.Equal(must(inTx.Templates.CheckUpdates(t.Context(), admin, nil)), h.checkUpdates(t))
	is.Equal(len(must(inTx.Sources.Search(t.Context(), admin, svc.CatalogFilter{}))), 4)
	is.NoErr(inTx.Sources.Remove(t.Context(), admin, "b"))
}

func TestRequestsAtOnceAreOne(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	h.market.put(acme, "z", content("Z", "1"))
	cut, kept := issue(t, h, alice), issue(t, h, alice)
	h.actions()
	rotate := func(old svc.IssuedKey, overlap time.Duration) func() (any, error) {
		return func() (any, error) {
			return h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{Overlap: overlap, IdempotencyKey: old.ID})
		}
	}
	for events, request := range map[int]func() (any, error){
		11: func() (any, error) {
			return h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
		},
		21: func() (any, error) {
			return h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"})
		},
		32: rotate(cut, 0), 42: rotate(kept, time.Hour), // the last digit is the number of events
	} {
		var group sync.WaitGroup
		answers, errs := make([]any, 16), make([]error, 16)
		for i := range answers {
			group.Go(func() { answers[i], errs[i] = request() })
		}
		group.Wait()
		is.NoErr(errors.Join(errs...))
		for _, answer := range answers {
			is.Equal(answer, answers[0])
		}
		is.Equal(len(h.actions()), events%10)
	}
}

// TestAnswersThatCannotBeRead: what was done by another call is no fault of ours when its answer cannot be read just now.
func TestAnswersThatCannotBeRead(t *testing.T) {
	h := withTemplate(t)
	must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"}))
	h.market.put(acme, "z", content("Z", "1"))
	install := svc.Install{TemplateID: "z", SourceName: "acme", IdempotencyKey: "once"}
	must(h.Templates.Install(t.Context(), admin, install))
	is.New(t).NoErr(h.Templates.Delete(t.Context(), admin, "z"))
	late := func() *host { // the second look of each call fails
		looks := 0
		return newHost(t, func(c *svc.Config) {
			late := ahead(h.store, "Answer", func(any) error {
				if looks++; looks == 1 {
					return svc.ErrNotFound
				}
				return svc.ErrUnavailable
			})
			late.Inside, c.Sources.Marketplace, c.Store = false, h.market, late
		})
	}
	wantCode(t, errorOf(late().Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})), svc.CodeUnavailable, "")
	wantCode(t, errorOf(late().Templates.Install(t.Context(), admin, install)), svc.CodeUnavailable, "")
}

// slowStore hears of no change. Once slow, it holds back what it has written: the answer, not the rows.
type slowStore struct {
	*intercept.Store
	slow            atomic.Bool
	written, answer chan struct{}
}

func newSlowStore(store svc.Store) *slowStore {
	s := &slowStore{written: make(chan struct{}), answer: make(chan struct{})}
	s.Store = around(deaf{store.(svc.FullStore)}, func(call intercept.Call) error {
		err := call.Do()
		if call.Writes && call.Method != "UseAPIKeys" && s.slow.CompareAndSwap(true, false) {
			close(s.written)
			<-s.answer
		}
		return err
	})
	s.Inside = false
	return s
}

// Whoever is told that a key is revoked, disabled or its holder's no more finds it refused, also when the call that did so has not
// returned yet, and nothing else has told this service of it.
func TestWhatACallHasSeenHolds(t *testing.T) {
	yes := true
	revoke := func(h *host, key svc.IssuedKey) error {
		return h.Keys.Revoke(context.Background(), alice, svc.Me, key.ID)
	}
	disable := func(h *host, key svc.IssuedKey) error {
		return errorOf(h.Keys.Patch(context.Background(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: &yes}))
	}
	deactivate := func(h *host, _ svc.IssuedKey) error {
		return h.Access.Apply(context.Background(), svc.Host, svc.Bundle{Users: []svc.User{{ID: "alice", Inactive: true}}})
	}
	for name, c := range map[string]struct {
		first, second func(*host, svc.IssuedKey) error
		code          svc.Code
	}{
		"revoke":        {revoke, revoke, svc.CodeNotFound},
		"disable":       {disable, disable, ""},
		"deactivate":    {deactivate, deactivate, ""},
		"revoke, patch": {revoke, disable, svc.CodeNotFound},
		"revoke, rotate": {revoke, func(h *host, key svc.IssuedKey) error {
			return errorOf(h.Keys.Rotate(context.Background(), alice, svc.Me, key.ID, svc.Rotation{}))
		}, svc.CodeNotFound},
		"revoke, revoke all": {revoke, func(h *host, _ svc.IssuedKey) error {
			return errorOf(h.Keys.RevokeAll(context.Background(), alice, svc.Me))
		}, ""},
		"revoke, revoke leaked": {revoke, func(h *host, key svc.IssuedKey) error {
			return errorOf(h.Keys.RevokeLeaked(context.Background(), svc.Host, []string{string(key.Key)}))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			var slow *slowStore
			h, store := watched(t, func(c *svc.Config) {
				slow = newSlowStore(c.Store)
				c.Store = slow
			})
			key := issue(t, h, alice)
			h.remembered(t, store, key)
			slow.slow.Store(true)
			ended := make(chan error)
			go func() { ended <- c.first(h, key) }()
			<-slow.written
			is.Equal(svc.ErrorCode(c.second(h, key)), c.code)
			wantCode(t, errorOf(h.Authenticate(t.Context(), string(key.Key))), svc.CodeUnauthenticated, "")
			close(slow.answer)
			is.NoErr(<-ended)
		})
	}
}

// cached is a service over the store of another one, which hears of no change. It has cached the key, by which it says whether alice
// may write users.
func (elsewhere *host) cached(t *testing.T, key svc.IssuedKey, around func(svc.FullStore) svc.Store) (may func() bool, h *host) {
	h = newHost(t, func(c *svc.Config) { c.Store = around(deaf{elsewhere.store.(svc.FullStore)}) })
	may = func() bool {
		by, err := h.Authenticate(t.Context(), string(key.Key))
		return err == nil && must(h.May(t.Context(), by, action.UsersWrite, "*"))
	}
	for reads := uint64(math.MaxUint64); h.Stats().CacheReads != reads; may() {
		reads = h.Stats().CacheReads
	}
	return may, h
}

// Whoever has seen what another process has changed gets no older answer, though nothing else has told this service of it.
func TestWhatAListHasShownHolds(t *testing.T) {
	toAlice := svc.GrantedTo{Type: svc.GrantedToUser, ID: alice.ID}
	type shown = func(h *host, key svc.IssuedKey)
	ctx, by, attached, anyKey, question := t.Context(), svc.Host, svc.AttachmentQuery{}, svc.KeyQuery{}, svc.Question{Bank: "*", Sender: "p:1"}
	var whoCan shown = func(h *host, _ svc.IssuedKey) { must(h.Policies.WhoCan(ctx, by, action.UsersWrite, "*")) }
	for name, look := range map[string]shown{
		"a row":          func(h *host, _ svc.IssuedKey) { must(h.Users.Read(ctx, by, alice.ID)) },
		"a list":         func(h *host, _ svc.IssuedKey) { collect(t, h.Policies.Attachments(ctx, by, attached)) },
		"all":            func(h *host, _ svc.IssuedKey) { must(h.Access.Export(ctx, by)) },
		"a key":          func(h *host, key svc.IssuedKey) { must(h.Keys.Find(ctx, by, key.Prefix)) },
		"keys":           func(h *host, _ svc.IssuedKey) { collect(t, h.Keys.List(ctx, by, svc.AllHolders, anyKey)) },
		"a trace":        func(h *host, _ svc.IssuedKey) { must(h.Policies.Resolve(ctx, by, question)) },
		"who can":        whoCan,
		"who can, moved": whoCan,
	} {
		t.Run(name, func(t *testing.T) {
			is, elsewhere := is.New(t), newHost(t)
			is.NoErr(elsewhere.Access.Apply(t.Context(), svc.Host, svc.Bundle{
				Users:       []svc.User{{ID: alice.ID}},
				Attachments: []svc.Attachment{{PolicyID: svc.PolicyIAMAdmin, Principal: toAlice}},
			}))
			key := issue(t, elsewhere, alice)
			may, h := elsewhere.cached(t, key, func(s svc.FullStore) svc.Store { return s })
			if name == "who can, moved" {
				for first := h.Stats().CacheBytes; h.Stats().CacheBytes == first; look(h, key) {
				}
				must(elsewhere.Users.Create(ctx, by, svc.User{ID: "bob"}))
				must(h.Users.Read(ctx, by, "bob")) // a change that is known makes it look at the store
				eventually(t, func() bool { return may() && h.Stats().Lag == 0 })
			}
			is.NoErr(elsewhere.Policies.Detach(t.Context(), svc.Host, svc.AttachmentKey{PolicyID: svc.PolicyIAMAdmin, Principal: toAlice}))
			is.NoErr(elsewhere.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), key.ID))
			look(h, key)
			is.True(!may())
		})
	}
}

// Whoever gets the answer to a rotation finds the old key refused, also when another process has rotated it, or when the connection
// was lost at the commit, and nothing else has told this service of it.
func TestRotationThatIsAnsweredHolds(t *testing.T) {
	in := svc.Rotation{IdempotencyKey: "once"}
	for name, rotate := range map[string]func(elsewhere *host, lose *atomic.Bool, key svc.IssuedKey) error{
		"elsewhere": func(elsewhere *host, _ *atomic.Bool, key svc.IssuedKey) error {
			return errorOf(elsewhere.Keys.Rotate(context.Background(), alice, svc.Me, key.ID, in))
		},
		"lost": func(_ *host, lose *atomic.Bool, _ svc.IssuedKey) error {
			lose.Store(true)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			is, elsewhere := is.New(t), newHost(t)
			var lose atomic.Bool
			key := issue(t, elsewhere, alice)
			_, h := elsewhere.cached(t, key, func(store svc.FullStore) svc.Store {
				loses := around(store, func(call intercept.Call) error {
					err := call.Do()
					if call.Method == "Atomically" && lose.Load() {
						err = errors.Join(err, svc.ErrUnavailable)
					}
					return err
				})
				loses.Inside = false
				return loses
			})
			is.NoErr(rotate(elsewhere, &lose, key))
			next := must(h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, in))
			wantCode(t, errorOf(h.Authenticate(t.Context(), string(key.Key))), svc.CodeUnauthenticated, "")
			must(h.Authenticate(t.Context(), string(next.Key)))
		})
	}
}

// A commit whose outcome is lost is found by the answer to its idempotency key: its events are told, once.
func TestACommitWithALostOutcomeIsTold(t *testing.T) {
	is, lost := is.New(t), 0
	h := newHost(t, func(c *svc.Config) {
		c.Store = &intercept.Store{FullStore: c.Store.(svc.FullStore), Around: func(_ context.Context, call intercept.Call) error {
			err := call.Do()
			if err == nil && call.Method == "Atomically" && lost > 0 {
				lost--
				return errors.New("the connection is gone")
			}
			return err
		}}
	})
	h.apply(t, `{"users": [{"id": "u"}]}`)
	h.actions()
	holder, in := svc.Identity{Kind: svc.KindUser, ID: "u"}, svc.NewAPIKey{IdempotencyKey: "once"}
	lost = 1
	first := must(h.Keys.Issue(t.Context(), svc.Host, holder, in))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + first.ID + " by "})
	is.Equal(must(h.Keys.Issue(t.Context(), svc.Host, holder, in)), first)
	is.Equal(len(h.actions()), 0)
}
