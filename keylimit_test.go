package svc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func limited(most int) func(*svc.Config) {
	return func(c *svc.Config) {
		c.Keys.MaxPerHolder, c.Keys.Imports = most, []svc.KeyImport{{Prefix: "sk-"}}
	}
}

// A holder has no more keys than are allowed, whoever issues them. Disabled and expired ones count,
// revoked ones do not.
func TestKeysPerHolder(t *testing.T) {
	is := is.New(t)
	h := newHost(t, limited(3))
	key := h.issueWith(t, svc.NewAPIKey{ExpiresAt: h.now().Add(2 * time.Second)})
	other := issue(t, h, alice)
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, other.ID, svc.APIKeyPatch{Disabled: new(true)})
	is.NoErr(err)
	once := svc.NewAPIKey{IdempotencyKey: "once"}
	third, err := h.Keys.Issue(t.Context(), alice, svc.Me, once)
	is.NoErr(err)
	for name, issue := range map[string]func() error{
		"issue": func() error {
			_, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{})
			return err
		},
		"issue mine": func() error { _, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{}); return err },
		"import": func() error {
			_, err := h.Keys.Import(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{Prefix: "sk-", Hash: make([]byte, 32)})
			return err
		},
		"rotate with an overlap": func() error { _, err := h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, time.Hour); return err },
	} {
		t.Log(name)
		wantCode(t, issue(), svc.CodeLimit, "")
	}
	is.Equal(len(keysOf(t, h)), 3)
	_, err = h.Keys.Rotate(t.Context(), alice, svc.Me, "0123456789abcdef", time.Hour)
	wantCode(t, err, svc.CodeNotFound, "")
	again, err := h.Keys.Issue(t.Context(), alice, svc.Me, once)
	is.NoErr(err)
	is.Equal(again.Key, third.Key)
	_, err = h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, 0) // one for one
	is.NoErr(err)
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, other.ID))
	issue(t, h, alice)
	issue(t, h, user("bob"))
	is.Equal(len(keysOf(t, h)), 3)
}

func TestKeysPerHolderByDefault(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for range svc.DefaultMaxKeysPerHolder {
		issue(t, h, alice)
	}
	_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	wantCode(t, err, svc.CodeLimit, "")
	_, err = svc.New(svc.Config{Store: h.store, Keys: svc.KeyConfig{MaxPerHolder: -1}})
	is.True(err != nil)
}

// chunks counts the keys of each revocation of many, and calls after behind each.
type chunks struct {
	svc.Store
	sizes *[]int
	after func()
}

func (s chunks) RevokeAPIKeys(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
	ids, err := s.Store.RevokeAPIKeys(ctx, holder, at, limit)
	*s.sizes = append(*s.sizes, len(ids))
	return ids, err
}

func (s chunks) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	before := len(*s.sizes)
	err := s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, chunks{tx, s.sizes, s.after}) })
	if len(*s.sizes) > before && s.after != nil {
		s.after()
	}
	return err
}

// Many keys are revoked in chunks, each a transaction that tells of its own keys once it is
// committed. When ctx ends in between what was revoked stays revoked, and a repetition does the
// rest. In a transaction of the host all are part of that.
func TestAllKeysAreRevokedInChunks(t *testing.T) {
	is := is.New(t)
	var sizes []int
	var after func()
	h := newHost(t, limited(700), func(c *svc.Config) {
		c.Store = chunks{c.Store, &sizes, func() {
			if after != nil {
				after()
			}
		}}
	})
	fill := func() {
		sizes = nil
		for len(keysOf(t, h)) < 700 {
			for range 700 - len(keysOf(t, h)) {
				issue(t, h, alice)
			}
		}
		h.actions()
	}
	fill()
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	after = func() {
		is.Equal(len(h.actions()), told) // of the chunk before
		told = 256
		if len(sizes) == 2 {
			cancel()
		}
	}
	n, err := h.Keys.RevokeAll(ctx, alice, svc.Me)
	wantCode(t, err, svc.CodeUnavailable, "")
	is.True(n == 256 || n == 512) // a store may find that ctx has ended by the end of the second
	is.Equal(len(keysOf(t, h)), 700-n)
	after = nil
	rest, err := h.Keys.RevokeAll(t.Context(), alice, svc.Me)
	is.NoErr(err)
	is.Equal(n+rest, 700)
	is.Equal(len(keysOf(t, h)), 0)
	for _, size := range sizes {
		is.True(size <= 256)
	}

	fill()
	is.NoErr(h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		n, err := h.WithStore(tx).Keys.RevokeAll(ctx, alice, svc.Me)
		if n != 700 {
			return fmt.Errorf("%d were revoked", n)
		}
		return err
	}))
	is.Equal(len(keysOf(t, h)), 0)
}

// A list begins behind a position, of a key that need not be there any more.
func TestKeysAfter(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for range 5 {
		issue(t, h, alice)
	}
	all := keysOf(t, h)
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, all[1].ID))
	after := func(key svc.APIKey) svc.KeyQuery {
		return svc.KeyQuery{AfterTime: key.CreatedAt, AfterID: key.ID}
	}
	list := func(holder svc.Identity, query svc.KeyQuery) []svc.APIKey {
		return collect(t, h.Keys.List(t.Context(), alice, holder, query))
	}
	is.Equal(list(svc.Me, after(all[1])), all[2:])
	is.Equal(collect(t, h.Keys.List(t.Context(), svc.Host, alice.Identity(), after(all[3]))), all[4:])
	for limit := range 7 {
		query := after(all[0])
		query.Limit = limit
		want := keysOf(t, h)[1:]
		if limit > 0 {
			want = want[:min(limit, len(want))]
		}
		is.Equal(list(svc.Me, query), want)
	}
	wrong := after(all[0])
	wrong.AfterID = "a\x00"
	wantCode(t, lastError(h.Keys.List(t.Context(), alice, svc.Me, wrong)), svc.CodeInvalid, "id")
	wrong = svc.KeyQuery{Limit: -1}
	wantCode(t, lastError(h.Keys.List(t.Context(), alice, svc.Me, wrong)), svc.CodeInvalid, "limit")
}
