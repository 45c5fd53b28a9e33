package svc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
)

func TestDecide(t *testing.T) {
	h := newHost(t)
	h.apply(t, world)
	alice, ci, nowhere := user("alice"), account("ci"), svc.Context{}
	for _, c := range []struct {
		by               svc.Principal
		action, bank     string
		in               svc.Context
		outcome          svc.Outcome
		strategy, budget string
	}{
		{alice, "bank:recall", "notes", nowhere, svc.Allow, "deep", "high"},
		{alice, "bank:recall", "notes", svc.Context{Provider: "telegram"}, svc.Allow, "quick", "high"},
		{alice, "bank:recall", "notes", svc.Context{Provider: "telegram", Topic: "news"}, svc.Allow, "daily", "high"},
		{alice, "bank:delete", "prod::1", nowhere, svc.ExplicitDeny, "", ""},
		{alice, "iam:users:read", "*", nowhere, svc.ImplicitDeny, "", ""},
		{user("alice", "iam:users:read"), "iam:users:read", "*", nowhere, svc.Allow, "", ""},
		{user("alice", "iam:users:read"), "iam:users:read", "notes", nowhere, svc.ImplicitDeny, "", ""},
		{user("idle", "iam:*"), "iam:users:read", "*", nowhere, svc.ImplicitDeny, "", ""},
		{user("stranger"), "bank:recall", "notes", nowhere, svc.ImplicitDeny, "", ""},
		{user("stranger", "iam:*"), "iam:users:read", "*", nowhere, svc.Allow, "", ""},
		{ci, "bank:recall", "notes", nowhere, svc.Allow, "deep", "low"},
		{ci, "bank:recall", "other", nowhere, svc.ImplicitDeny, "", ""},
		{account("idle-owned"), "bank:recall", "notes", nowhere, svc.ImplicitDeny, "", ""},
		{svc.Unmapped, "bank:recall", "notes", svc.Context{Provider: "slack"}, svc.Allow, "deep", "low"},
		{svc.Unmapped, "bank:recall", "notes", svc.Context{Channel: "closed"}, svc.ImplicitDeny, "", ""},
		{svc.Unmapped, "bank:recall", "other", nowhere, svc.ImplicitDeny, "", ""},
		{svc.Principal{Kind: svc.KindUnmapped, Actions: []string{"iam:*"}}, "iam:users:read", "*", nowhere, svc.ImplicitDeny, "", ""},
		{svc.Host, "anything", "anywhere", nowhere, svc.Allow, "", ""},
		{svc.Principal{Kind: "ghost", ID: "alice"}, "bank:recall", "notes", nowhere, svc.ImplicitDeny, "", ""},
		{user("no\x00body"), "bank:recall", "notes", nowhere, svc.ImplicitDeny, "", ""},
	} {
		for range 2 { // read, then remembered
			is := is.New(t)
			d := must(h.Decide(t.Context(), c.by, c.action, c.bank, c.in))
			strategy, _ := d.Strategy()
			got := []string{string(d.Outcome()), strategy, or(d.Parameters().RecallBudget)}
			is.Equal(got, []string{string(c.outcome), c.strategy, c.budget})
			is.Equal(d.Allowed(), c.outcome == svc.Allow)
			is.True(d.Reason() != "")
		}
	}
	wantCode(t, errorOf(h.Decide(t.Context(), alice, "", "notes", nowhere)), svc.CodeInvalid, "action")
	wantCode(t, errorOf(h.Decide(t.Context(), alice, "bank:recall", "no\x00tes", nowhere)), svc.CodeInvalid, "bank")
	is.New(t).True(!svc.Decision{}.Allowed())
}

// watchedStore counts the reads that decisions make, and fails when it is told to.
type watchedStore struct {
	svc.Store
	reads atomic.Int64
	down  atomic.Bool
}

var errDown = fmt.Errorf("no route: %w", svc.ErrUnavailable)

func (s *watchedStore) Access(ctx context.Context, q svc.AccessQuery) (svc.AccessSnapshot, error) {
	s.reads.Add(1)
	if s.down.Load() {
		return svc.AccessSnapshot{}, errDown
	}
	return s.Store.Access(ctx, q)
}

func (s *watchedStore) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	if s.down.Load() {
		return svc.StoreChanges{}, errDown
	}
	return s.Store.Changes(ctx, since)
}

func (s *watchedStore) AwaitChange(ctx context.Context, since int64) error {
	if s.down.Load() {
		return errDown
	}
	return s.Store.AwaitChange(ctx, since)
}

func watched(t *testing.T, edits ...func(*svc.Config)) (*host, *watchedStore) {
	store := &watchedStore{}
	h := newHost(t, append(edits, func(c *svc.Config) {
		store.Store = c.Store
		c.Store = store
	})...)
	h.apply(t, world)
	return h, store
}

// warm asks until the answer is remembered.
func (h *host) warm(t *testing.T, store *watchedStore, p svc.Principal, bank string) {
	t.Helper()
	eventually(t, func() bool {
		before := store.reads.Load()
		_, err := h.Decide(t.Context(), p, "bank:recall", bank, svc.Context{})
		return err == nil && store.reads.Load() == before
	})
}

func TestDecideReadsOnce(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	h.warm(t, store, user("alice"), "notes")
	before := store.reads.Load()
	for i := range 1000 {
		is.True(must(h.Decide(t.Context(), user("alice"), fmt.Sprint("bank:", i), "notes", svc.Context{})).Allowed())
	}
	is.Equal(store.reads.Load(), before)
	must(h.Decide(t.Context(), user("alice"), "bank:recall", "other", svc.Context{}))
	is.Equal(store.reads.Load(), before+1) // for the policy of the other bank
}

func TestDecideSeesWhatThisServiceWrites(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	for i := range 20 {
		h.warm(t, store, user("alice"), "notes")
		h.apply(t, fmt.Sprintf(`{"users": [{"id": "alice", "is_active": %t}]}`, i%2 == 1))
		is.Equal(must(h.Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{})).Allowed(), i%2 == 1)
	}
}

// Who goes by one id is told apart, also when all of them are remembered: by kind, and by what narrows them.
func TestDecideTellsNamesakesApart(t *testing.T) {
	h, store := watched(t)
	narrowed := svc.Principal{Kind: svc.KindUser, ID: "alice", ScopingPolicyID: "narrow"}
	for range 3 {
		for i, by := range []svc.Principal{user("alice"), narrowed, account("alice")} {
			h.warm(t, store, by, "other")
			is.New(t).Equal(must(h.Decide(t.Context(), by, "bank:recall", "other", svc.Context{})).Allowed(), i == 0)
		}
	}
}

// What is remembered of a request is decided with the bank's policy as it is now, also when nothing else has changed.
func TestDecideSeesABanksNewPolicy(t *testing.T) {
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	strategy := func() string {
		d := must(h.Decide(t.Context(), account("ci"), "bank:recall", "notes", svc.Context{}))
		strategy, _ := d.Strategy()
		return strategy
	}
	for i := range 20 {
		h.warm(t, store, account("ci"), "notes")
		strategy()
		want := fmt.Sprint("strategy-", i)
		bundle := fmt.Sprintf(`{"bank_policies": [{"bank_id": "notes", "document": {"version": "2026-03-24", "default_strategy": %q}}]}`, want)
		if i%2 == 1 {
			other.apply(t, bundle)
			eventually(t, func() bool { return strategy() == want })
			continue
		}
		h.apply(t, bundle)
		if got := strategy(); got != want {
			t.Errorf("%q after %q was applied", got, want)
		}
	}
}

func TestDecideSeesWhatOthersWrite(t *testing.T) {
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	h.warm(t, store, account("ci"), "notes")
	other.apply(t, `{"service_accounts": [{"id": "ci", "owner_user_id": "alice", "is_active": false}]}`)
	eventually(t, func() bool {
		d := must(h.Decide(t.Context(), account("ci"), "bank:recall", "notes", svc.Context{}))
		return !d.Allowed()
	})
}

// Copies outlive the store for five seconds. Then there is no answer, and above all no allow.
func TestDecideWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store := watched(t)
		h.warm(t, store, user("alice"), "notes")
		store.down.Store(true)
		is.True(must(h.Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{})).Allowed())
		wantCode(t, errorOf(h.Decide(t.Context(), user("alice"), "bank:recall", "other", svc.Context{})), svc.CodeUnavailable, "")
		pass(5 * time.Second)
		d, err := h.Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{})
		wantCode(t, err, svc.CodeUnavailable, "")
		is.True(!d.Allowed())
		store.down.Store(false)
		h.warm(t, store, user("alice"), "notes")
	})
}

func TestDecideEndsWithItsContext(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	h.warm(t, store, user("alice"), "notes")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err := h.Decide(ctx, user("alice"), "bank:recall", "notes", svc.Context{})
	is.True(errors.Is(err, context.Canceled))
	is.True(!d.Allowed())
}

// In a host's transaction nothing is remembered.
func TestDecideInATransaction(t *testing.T) {
	h, store := watched(t)
	h.warm(t, store, user("alice"), "notes")
	before := store.reads.Load()
	for range 3 {
		must(h.WithTx(store).Decide(t.Context(), user("alice"), "bank:recall", "notes", svc.Context{}))
	}
	is.New(t).Equal(store.reads.Load(), before+3)
}

var revisions = longtest.Times(40, 300)

// While bundles are applied, here and by another service, every answer is of one revision: the parameter that the policy gives
// and the strategy that the bank gives are always of the same bundle.
func TestDecideOfOneRevision(t *testing.T) {
	for name, states := range map[string]int{"each new": revisions, "two by turns": 2} {
		t.Run(name, func(t *testing.T) { decideOfOneRevision(t, states) })
	}
}

func decideOfOneRevision(t *testing.T, states int) {
	h, _ := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	bundle := func(revision int) string {
		return fmt.Sprintf(`{"policies": [{"id": "wide", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:*"], "banks": ["*"], "recall_max_tokens": %[1]d}]}}],
			"bank_policies": [{"bank_id": "notes", "document": {"version": "2026-03-24", "default_strategy": "%[1]d"}},
				{"bank_id": "more", "document": {"version": "2026-03-24", "default_strategy": "%[1]d"}}]}`, revision%states)
	}
	h.apply(t, bundle(0))
	var applied atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				least := applied.Load()
				d, err := h.Decide(t.Context(), user("alice"), "bank:recall", []string{"notes", "more"}[i%2], svc.Context{})
				if err != nil {
					t.Error(err)
					return
				}
				strategy, _ := d.Strategy()
				if tokens := *d.Parameters().RecallMaxTokens; fmt.Sprint(tokens) != strategy {
					t.Errorf("tokens of %d, strategy of %s", tokens, strategy)
				} else if states == revisions && tokens < least {
					t.Errorf("revision %d, after %d was applied here", tokens, least)
				}
			}
		})
	}
	for revision := 1; revision < revisions && !t.Failed(); revision++ {
		if revision%3 == 0 {
			other.apply(t, bundle(revision))
			continue
		}
		h.apply(t, bundle(revision))
		applied.Store(int64(revision))
		time.Sleep(time.Duration(revision%4) * 100 * time.Microsecond)
	}
	stop.Store(true)
	wg.Wait()
}

func TestDecideAllocatesNothing(t *testing.T) {
	h, store := watched(t)
	alice := user("alice")
	h.warm(t, store, alice, "notes")
	allocs := testing.AllocsPerRun(1000, func() {
		if d, err := h.Decide(context.Background(), alice, "bank:recall", "notes", svc.Context{}); err != nil || !d.Allowed() {
			t.Error(d, err)
		}
	})
	if allocs >= 1 {
		t.Errorf("%v allocations", allocs)
	}
}

// A question that is a mistake of the host's code is refused, and so is one of a closed Service.
func TestDecideRefusesMistakes(t *testing.T) {
	h := newHost(t)
	for _, by := range []svc.Principal{{}, {ID: "alice"}, {Actions: []string{"*"}}} {
		wantCode(t, errorOf(h.Decide(t.Context(), by, "bank:recall", "notes", svc.Context{})), svc.CodeInvalid, "principal")
	}
	for _, pattern := range []string{"*", "bank:*", "iam:users:*", "bank:recall*"} {
		wantCode(t, errorOf(h.Decide(t.Context(), alice, pattern, "notes", svc.Context{})), svc.CodeInvalid, "action")
	}
	must(h.Decide(t.Context(), alice, "bank:recall", "notes", svc.Context{}))
	is.New(t).NoErr(h.Close())
	for _, by := range []svc.Principal{alice, svc.Host, svc.Unmapped} {
		wantCode(t, errorOf(h.Decide(t.Context(), by, "bank:recall", "notes", svc.Context{})), svc.CodeUnavailable, "")
	}
}

// slowStore holds back what it has written: the answers, not the rows.
type slowStore struct {
	svc.Store
	written, answer chan struct{}
	slow            bool
}

func (s *slowStore) hold(err error) error {
	if s.slow {
		s.slow = false
		close(s.written)
		<-s.answer
	}
	return err
}

func (s *slowStore) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.hold(s.Store.ChangeAPIKey(ctx, holder, id, change))
}

func (s *slowStore) ChangeAccess(ctx context.Context, names svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	return s.hold(s.Store.ChangeAccess(ctx, names, change))
}

func (s *slowStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.hold(s.Store.Atomically(ctx, fn))
}

// AwaitChange sleeps until somebody has heard of a change.
func (s *slowStore) AwaitChange(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
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
			slow := &slowStore{written: make(chan struct{}), answer: make(chan struct{})}
			h, store := watched(t, func(c *svc.Config) {
				slow.Store, c.Store = c.Store, slow
			})
			key := issue(t, h, alice)
			h.remembered(t, store, key)
			slow.slow = true
			ended := make(chan error)
			go func() { ended <- c.first(h, key) }()
			<-slow.written
			err := c.second(h, key)
			is.Equal(svc.ErrorCode(err), c.code)
			wantCode(t, errorOf(h.Authenticate(t.Context(), string(key.Key))), svc.CodeUnauthenticated, "")
			close(slow.answer)
			is.NoErr(<-ended)
		})
	}
}
