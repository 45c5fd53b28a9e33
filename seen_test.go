package svc_test

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

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
		_, err := h.Keys.Patch(context.Background(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: &yes})
		return err
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
			_, err := h.Keys.Rotate(context.Background(), alice, svc.Me, key.ID, 0)
			return err
		}, svc.CodeNotFound},
		"revoke, revoke all": {revoke, func(h *host, _ svc.IssuedKey) error {
			_, err := h.Keys.RevokeAll(context.Background(), alice, svc.Me)
			return err
		}, ""},
		"revoke, revoke leaked": {revoke, func(h *host, key svc.IssuedKey) error {
			_, err := h.Keys.RevokeLeaked(context.Background(), svc.Host, []string{string(key.Key)})
			return err
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
			_, err = h.Authenticate(t.Context(), string(key.Key))
			wantCode(t, err, svc.CodeUnauthenticated, "")
			close(slow.answer)
			is.NoErr(<-ended)
		})
	}
}
