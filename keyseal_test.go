package svc_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// editedStore hands out keys as if their rows had been edited in the database.
type editedStore struct {
	svc.Store
	edit func(*svc.APIKey)
}

func (s *editedStore) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	snapshot, err := s.Store.Access(ctx, query)
	if snapshot.Key != nil {
		s.edit(snapshot.Key)
	}
	return snapshot, err
}

func (s *editedStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, &editedStore{tx, s.edit}) })
}

func (s *editedStore) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.Store.ChangeAPIKey(ctx, holder, id, func(key *svc.APIKey) (bool, error) {
		s.edit(key)
		return change(key)
	})
}

// A key whose row says something else than this service has written is refused, and the operator is told. It cannot be
// made good again by a change of it, and can be revoked.
func TestEditedRowIsRefused(t *testing.T) {
	h := newHost(t)
	h.apply(t, world)
	other := issue(t, h, alice)
	for name, c := range map[string]struct {
		in   svc.NewAPIKey
		edit func(*svc.APIKey)
	}{
		"whose it is":            {edit: func(k *svc.APIKey) { k.Holder.ID = "bob" }},
		"of which kind it is":    {edit: func(k *svc.APIKey) { k.Holder = svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"} }},
		"its hash":               {edit: func(k *svc.APIKey) { k.Hash = other.Hash }},
		"its hash and seal":      {edit: func(k *svc.APIKey) { k.Hash, k.Seal = other.Hash, other.Seal }},
		"no seal":                {edit: func(k *svc.APIKey) { k.Seal = nil }},
		"another's seal":         {edit: func(k *svc.APIKey) { k.Seal = other.Seal }},
		"when it was made":       {edit: func(k *svc.APIKey) { k.CreatedAt = k.CreatedAt.Add(time.Second) }},
		"an expiry put off":      {svc.NewAPIKey{ExpiresAt: h.now().Add(time.Hour)}, func(k *svc.APIKey) { k.ExpiresAt = k.ExpiresAt.Add(time.Hour) }},
		"an expiry taken away":   {svc.NewAPIKey{ExpiresAt: h.now().Add(time.Hour)}, func(k *svc.APIKey) { k.ExpiresAt = time.Time{} }},
		"an expiry":              {edit: func(k *svc.APIKey) { k.ExpiresAt = h.now().Add(time.Hour) }},
		"what narrows it":        {edit: func(k *svc.APIKey) { k.ScopingPolicyID = "narrow" }},
		"its prefix":             {edit: func(k *svc.APIKey) { k.Prefix = other.Prefix }},
		"enabled (was disabled)": {edit: func(k *svc.APIKey) { k.Disabled = !k.Disabled }},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			key, err := h.Keys.Issue(t.Context(), alice, svc.Me, c.in)
			is.NoErr(err)
			if strings.HasPrefix(name, "enabled") {
				_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: new(true)})
				is.NoErr(err)
			}
			var log bytes.Buffer
			edited := newHost(t, func(config *svc.Config) {
				config.Store = &editedStore{h.store, c.edit}
				config.Logger = slog.New(slog.NewTextHandler(&log, nil))
				config.Now = h.now
			})
			_, err = edited.Authenticate(t.Context(), string(key.Key))
			wantCode(t, err, svc.CodeUnauthenticated, "")
			is.True(strings.Contains(log.String(), key.ID))
			is.True(!strings.Contains(log.String(), string(key.Key[21:53])))

			_, err = edited.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Description: &svc.TextPatch{}})
			wantCode(t, err, svc.CodeInvalid, "key_id")
			_, err = edited.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, time.Hour)
			wantCode(t, err, svc.CodeInvalid, "key_id")
			is.NoErr(edited.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
		})
	}
}

// A revocation that is undone in the database stays one, with a pepper and without.
func TestRevocationIsNotUndoneInTheDatabase(t *testing.T) {
	t.Run("pepper", func(t *testing.T) { revocationIsNotUndone(t, func(*svc.Config) {}) })
	t.Run("unsealed", func(t *testing.T) {
		revocationIsNotUndone(t, func(c *svc.Config) { c.Keys.Peppers[0].AcceptUnsealed = true })
	})
	t.Run("no pepper", func(t *testing.T) { revocationIsNotUndone(t, func(c *svc.Config) { c.Keys.Peppers = nil }) })
}

func revocationIsNotUndone(t *testing.T, configure func(*svc.Config)) {
	is := is.New(t)
	h := newHost(t, configure)
	undone := newHost(t, configure, func(c *svc.Config) {
		c.Store = &editedStore{h.store, func(k *svc.APIKey) { k.RevokedAt = time.Time{} }}
	})
	revoke := map[string]func(svc.IssuedKey) error{
		"one": func(k svc.IssuedKey) error { return h.Keys.Revoke(t.Context(), alice, svc.Me, k.ID) },
		"all": func(svc.IssuedKey) error { _, err := h.Keys.RevokeAll(t.Context(), alice, svc.Me); return err },
		"leaked": func(k svc.IssuedKey) error {
			_, err := h.Keys.RevokeLeaked(t.Context(), svc.Host, []string{string(k.Key)})
			return err
		},
		"rotated": func(k svc.IssuedKey) error {
			_, err := h.Keys.Rotate(t.Context(), alice, svc.Me, k.ID, 0)
			return err
		},
	}
	for name, revoke := range revoke {
		key := issue(t, h, alice)
		is.True(undone.good(key)) // untouched
		is.NoErr(revoke(key))
		svc.DropCopies(undone.Service)
		if undone.good(key) {
			t.Errorf("%s: good again", name)
		}
	}
}

// What the service itself changes it seals again: a key that was patched, disabled and enabled, and one that was rotated, are good.
func TestChangedKeysAreSealed(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := issue(t, h, alice)
	for _, patch := range []svc.APIKeyPatch{
		{ExpiresAt: new(h.now().Add(365 * 24 * time.Hour))}, {Disabled: new(true)}, {Description: &svc.TextPatch{Value: new("new")}},
		{Disabled: new(false)}, {ExpiresAt: &time.Time{}},
	} {
		patched, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, patch)
		is.NoErr(err)
		is.Equal(h.good(key), !patched.Disabled)
	}
	next, err := h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, time.Hour)
	is.NoErr(err)
	is.True(h.good(key) && h.good(next))
}

// A process that does not have a key's pepper yet does not spoil its seal.
func TestUnknownPepperIsNotSealed(t *testing.T) {
	is := is.New(t)
	two := svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
	h := newHost(t, func(c *svc.Config) { c.Keys.Peppers = append([]svc.Pepper{two}, c.Keys.Peppers...) })
	behind := newHost(t, func(c *svc.Config) { c.Store = h.store })
	key := issue(t, h, alice)
	_, err := behind.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: new(true)})
	wantCode(t, err, svc.CodeInvalid, "key_id")
	is.True(h.good(key))
}

// Under a pepper that was in use before rows were sealed, keys without a seal are good, and sealed when they are used: once
// they are, the pepper needs not accept such keys any more.
func TestKeysFromBeforeRowsWereSealed(t *testing.T) {
	is := is.New(t)
	h, _, clock := counted(t)
	with := func(accept bool) *host {
		return newHost(t, clock.configure, func(c *svc.Config) {
			c.Store = h.store
			c.Keys.Peppers[0].AcceptUnsealed = accept
		})
	}
	used, unused, edited := issue(t, h, alice), issue(t, h, alice), issue(t, h, alice)
	for _, key := range []svc.IssuedKey{used, unused} {
		is.NoErr(h.store.ChangeAPIKey(t.Context(), alice.Identity(), key.ID, func(k *svc.APIKey) (bool, error) {
			k.Seal = nil
			return true, nil
		}))
	}
	is.NoErr(h.store.ChangeAPIKey(t.Context(), alice.Identity(), edited.ID, func(k *svc.APIKey) (bool, error) {
		k.Disabled = true
		return true, nil
	}))
	is.True(!with(false).good(used))
	accepting := with(true)
	is.True(accepting.good(used))
	is.True(!accepting.good(edited))
	is.NoErr(accepting.Close())
	is.True(with(false).good(used))
	is.True(!with(false).good(unused))
	is.True(with(true).good(unused))
}

// While keys from before there was a pepper are accepted, who can write the database can make keys, and take over those that there are:
// docs/keys.md says so. It ends when they are retired.
func TestKeysWithoutPepperCanBeForged(t *testing.T) {
	is := is.New(t)
	old := newHost(t, func(c *svc.Config) { c.Keys.Peppers = nil })
	made := issue(t, old, bob) // as a writer of the database makes one, who reads the key of ids there
	own := svc.Pepper{Version: "1", Secret: []byte("a pepper of the test")}
	forge := func(peppers ...svc.Pepper) *host {
		return newHost(t, func(c *svc.Config) {
			c.Keys.Peppers = append([]svc.Pepper{own}, peppers...)
			c.Store = &editedStore{old.store, func(k *svc.APIKey) { k.Holder = alice.Identity() }}
		})
	}
	is.Equal(forge(svc.Pepper{}).principal(t, made).Identity(), alice.Identity())
	is.True(!forge(svc.Pepper{Retired: true}).good(made))
	is.True(!forge().good(made))
}
