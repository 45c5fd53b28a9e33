package svc_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/expect"
)

func editing(edit func(*svc.APIKey)) hooks {
	return hooks{key: edit, access: func(a *svc.AccessSnapshot, _ bool) error {
		if a.Key != nil {
			edit(a.Key)
		}
		return nil
	}}
}

// A key whose row says something else than this service has written is refused, and the operator is told. It cannot be
// made good again by a change of it, and can be revoked.
func TestEditedRowIsRefused(t *testing.T) {
	h := hostOf(t, world)
	other := issue(t, h, alice)
	for name, c := range map[string]struct {
		in   svc.NewAPIKey
		edit func(*svc.APIKey)
	}{
		"of which kind it is":    {edit: func(k *svc.APIKey) { k.Holder = svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"} }},
		"its hash and seal":      {edit: func(k *svc.APIKey) { k.Hash, k.Seal = other.Hash, other.Seal }},
		"no seal":                {edit: func(k *svc.APIKey) { k.Seal = nil }},
		"another's seal":         {edit: func(k *svc.APIKey) { k.Seal = other.Seal }},
		"an expiry put off":      {svc.NewAPIKey{ExpiresAt: h.now().Add(time.Hour)}, func(k *svc.APIKey) { k.ExpiresAt = k.ExpiresAt.Add(time.Hour) }},
		"an expiry taken away":   {svc.NewAPIKey{ExpiresAt: h.now().Add(time.Hour)}, func(k *svc.APIKey) { k.ExpiresAt = time.Time{} }},
		"an expiry":              {edit: func(k *svc.APIKey) { k.ExpiresAt = h.now().Add(time.Hour) }},
		"enabled (was disabled)": {edit: func(k *svc.APIKey) { k.Disabled = !k.Disabled }},
	} {
		t.Run(name, func(t *testing.T) {
			is, key := is.New(t), must(h.Keys.Issue(t.Context(), alice, svc.Me, c.in))
			if strings.HasPrefix(name, "enabled") {
				must(h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: new(true)}))
			}
			var log bytes.Buffer
			edited := newHost(t, func(config *svc.Config) {
				config.Store = hook(h.store, editing(c.edit))
				config.Logger = slog.New(slog.NewTextHandler(&log, nil))
				config.Now = h.now
			})
			wantCode(t, errorOf(edited.Authenticate(t.Context(), string(key.Key))), svc.CodeUnauthenticated, "")
			is.True(strings.Contains(log.String(), key.ID))
			is.True(!strings.Contains(log.String(), string(key.Key[21:53])))

			_, err := edited.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Description: &svc.TextPatch{}})
			wantCode(t, err, svc.CodeInvalid, "key_id")
			wantCode(t, errorOf(edited.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, svc.Rotation{Overlap: time.Hour})), svc.CodeInvalid, "key_id")
			is.NoErr(edited.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
		})
	}
}

// A key is refused whichever field of its row is edited, but for those that say nothing about what it is good for.
func TestEveryFieldOfAKeyIsSealed(t *testing.T) {
	h, free := hostOf(t, world), []string{"Description", "LastUsedAt", "SuccessorID", "Rate"}
	for field := range reflect.TypeFor[svc.APIKey]().Fields() {
		key := issue(t, h, alice)
		edited := newHost(t, func(c *svc.Config) {
			c.Store, c.Now = hook(h.store, editing(func(k *svc.APIKey) { spoil(reflect.ValueOf(k).Elem().FieldByIndex(field.Index)) })), h.now
		})
		expect.Equal(t, field.Name, edited.good(key), slices.Contains(free, field.Name))
	}
}

func spoil(field reflect.Value) {
	switch value := field.Addr().Interface().(type) {
	case *time.Time:
		*value = value.Add(time.Second)
	case *[]byte:
		*value = []byte("another")
	case *string:
		*value += "x"
	case *bool:
		*value = !*value
	case *svc.Rate:
		*value = svc.Rate{PerSecond: 1, Burst: 1}
	default:
		field.SetZero()
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
	is, h := is.New(t), newHost(t, configure)
	undone := func() *host { // one that has cached nothing
		return newHost(t, configure, func(c *svc.Config) {
			c.Store = hook(h.store, editing(func(k *svc.APIKey) { k.RevokedAt = time.Time{} }))
		})
	}
	revoke := map[string]func(svc.IssuedKey) error{
		"one": func(k svc.IssuedKey) error { return h.Keys.Revoke(t.Context(), alice, svc.Me, k.ID) },
		"all": func(svc.IssuedKey) error { return errorOf(h.Keys.RevokeAll(t.Context(), alice, svc.Me)) },
		"leaked": func(k svc.IssuedKey) error {
			return errorOf(h.Keys.RevokeLeaked(t.Context(), svc.Host, []string{string(k.Key)}))
		},
		"rotated": func(k svc.IssuedKey) error {
			return errorOf(h.Keys.Rotate(t.Context(), alice, svc.Me, k.ID, svc.Rotation{}))
		},
	}
	for name, revoke := range revoke {
		key := issue(t, h, alice)
		is.True(undone().good(key)) // untouched
		is.NoErr(revoke(key))
		expect.Holds(t, !undone().good(key), name, ": stays revoked")
	}
}

// A process that does not have a key's pepper yet does not spoil its seal.
func TestUnknownPepperIsNotSealed(t *testing.T) {
	h := newHost(t, func(c *svc.Config) { c.Keys.Peppers = append([]svc.Pepper{two}, c.Keys.Peppers...) })
	behind := newHost(t, func(c *svc.Config) { c.Store = h.store })
	key := issue(t, h, alice)
	wantCode(t, errorOf(behind.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: new(true)})), svc.CodeInvalid, "key_id")
	is.New(t).True(h.good(key))
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
// docs/howto/secrets.md says so. It ends when they are retired.
func TestKeysWithoutPepperCanBeForged(t *testing.T) {
	is, old := is.New(t), newHost(t, func(c *svc.Config) { c.Keys.Peppers = nil })
	made := issue(t, old, bob) // as a writer of the database makes one, who reads the key of ids there
	own := svc.Pepper{Version: "1", Secret: []byte("a pepper of the test")}
	forge := func(peppers ...svc.Pepper) *host {
		return newHost(t, func(c *svc.Config) {
			c.Keys.Peppers = append([]svc.Pepper{own}, peppers...)
			c.Store = hook(old.store, editing(func(k *svc.APIKey) { k.Holder = alice.Identity() }))
		})
	}
	is.Equal(forge(svc.Pepper{}).principal(t, made).Identity(), alice.Identity())
	is.True(!forge(svc.Pepper{Retired: true}).good(made))
	is.True(!forge().good(made))
}

func keyedDigest(key string) []byte {
	mac := hmac.New(sha512.New, []byte("the other system's secret"))
	mac.Write([]byte(key))
	return mac.Sum(nil)
}

func plainDigest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

func importing(c *svc.Config) {
	c.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}, {Prefix: "old_live:", Hash: keyedDigest}}
}

const foreign = "sk-6f0c1f0a5c8e4f3b9d7a2e1b4c6d8f00"

func takeOver(t *testing.T, h *host, holder svc.Principal, key string) svc.APIKey {
	in := svc.ImportedKey{Prefix: "sk-", Hash: plainDigest(key), NewAPIKey: svc.NewAPIKey{Rate: scarce}}
	if strings.HasPrefix(key, "old_live:") {
		in.Prefix, in.Hash = "old_live:", keyedDigest(key)
	}
	return must(h.Keys.Import(t.Context(), svc.Host, holder.Identity(), in))
}

func TestImportedKeyIsAccepted(t *testing.T) {
	is, asked := is.New(t), 0
	h := newHost(t, importing, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(context.Context, string) (svc.Principal, error) {
			asked++
			return svc.Principal{}, svc.ErrUnauthenticated
		})
	})
	h.apply(t, world)
	h.actions()
	other := "old_live:" + strings.Repeat("x", 400)
	for key, holder := range map[string]svc.Principal{foreign: alice, other: account("ci")} {
		wantCode(t, errorOf(h.Authenticate(t.Context(), key)), svc.CodeUnauthenticated, "")
		imported := takeOver(t, h, holder, key)
		is.Equal(h.actions(), []string{"api_key.imported api_key/" + imported.ID + " by "})
		is.Equal(h.read(t, imported.ID), imported)
		is.Equal(imported.Rate, scarce)
		is.True(strings.HasSuffix(imported.Prefix, imported.ID))
		is.Equal(must(h.Authenticate(t.Context(), key)).Identity(), holder.Identity())
		for _, wrong := range []string{key + "x", key[:len(key)-1], key + " ", strings.ToUpper(key[:3]) + key[3:], imported.Prefix, key + strings.Repeat("x", 1000)} {
			wantCode(t, errorOf(h.Authenticate(t.Context(), wrong)), svc.CodeUnauthenticated, "")
		}
		is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, holder.Identity(), imported.ID))
		wantCode(t, errorOf(h.Authenticate(t.Context(), key)), svc.CodeUnauthenticated, "")
		h.actions()
	}
	is.Equal(asked, 2) // about the prefix in capitals, which is nobody's here
}

// Neither what the other system has kept nor what is kept here is a key, however it is written.
func TestImportedHashIsNoKey(t *testing.T) {
	h := newHost(t, importing)
	imported := takeOver(t, h, alice, foreign)
	for _, stored := range [][]byte{plainDigest(foreign), imported.Hash, imported.Seal} {
		for _, text := range []string{string(stored), hex.EncodeToString(stored), base64.StdEncoding.EncodeToString(stored), base64.RawURLEncoding.EncodeToString(stored)} {
			for _, prefix := range []string{"", "sk-", "svcu_", imported.Prefix, "svcu_" + imported.ID} {
				wantCode(t, errorOf(h.Authenticate(t.Context(), prefix+text)), svc.CodeUnauthenticated, "")
			}
		}
	}
	ours := "svcu_" + imported.ID + hex.EncodeToString(plainDigest(foreign))[:32]
	is.New(t).True(!h.good(svc.IssuedKey{Key: svc.Secret(resum(ours))}))
}

// What holds for keys that were issued here holds for those that were taken over.
func TestLifeOfAnImportedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		h, store, clock := counted(t, importing)
		good := func() bool { return h.good(svc.IssuedKey{Key: foreign}) }
		imported := takeOver(t, h, alice, foreign)
		is.True(good())
		pass(flushed)
		is.True(!h.read(t, imported.ID).LastUsedAt.IsZero())

		must(h.Keys.Patch(t.Context(), alice, svc.Me, imported.ID, svc.APIKeyPatch{Disabled: new(true)}))
		is.True(!good())
		must(h.Keys.Patch(t.Context(), alice, svc.Me, imported.ID, svc.APIKeyPatch{Disabled: new(false), ExpiresAt: new(clock.now().Add(time.Hour))}))
		is.True(good())

		moved := newHost(t, importing, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, append([]svc.Pepper{two}, c.Keys.Peppers...) })
		clock.in(time.Minute)
		is.True(moved.good(svc.IssuedKey{Key: foreign}))
		is.NoErr(moved.Close())
		is.Equal(h.read(t, imported.ID).Pepper, "2")
		moved = newHost(t, importing, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, []svc.Pepper{two} })
		is.True(moved.good(svc.IssuedKey{Key: foreign}))

		next := must(moved.Keys.Rotate(t.Context(), alice, svc.Me, imported.ID, svc.Rotation{Overlap: time.Minute}))
		is.True(moved.good(next) && strings.HasPrefix(string(next.Key), "svcu_"))
		is.Equal(len(must(moved.Keys.RevokeLeaked(t.Context(), svc.Host, []string{foreign}))), 1)
		is.True(!moved.good(svc.IssuedKey{Key: foreign}))

		for range 2 {
			_, err := moved.Keys.Import(t.Context(), svc.Host, bob.Identity(), svc.ImportedKey{Prefix: "sk-", Hash: plainDigest(foreign)})
			wantCode(t, err, svc.CodeExists, "hash") // a revoked key does not come back
		}
	})
}

func TestRevokeLeaked(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	good, disabled, revoked, spared := issue(t, h, alice), issue(t, h, bob), issue(t, h, alice), issue(t, h, alice)
	must(h.Keys.Patch(t.Context(), bob, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	h.remembered(t, store, good)
	h.actions()
	leaked := []string{
		string(good.Key), string(disabled.Key), string(revoked.Key), string(good.Key), "", "svcu_", "ghp_something", spared.Prefix,
		resum(string(spared.Key[:21]) + string(good.Key[21:53])), // its id with another's secret
		resum("svcs_" + string(spared.Key[5:53])),
		string(issue(t, newHost(t), alice).Key),
	}
	for _, by := range []svc.Principal{admin, alice, robot} {
		wantCode(t, errorOf(h.Keys.RevokeLeaked(t.Context(), by, leaked)), svc.CodeForbidden, "")
	}
	is.True(h.good(good))
	keys := must(h.Keys.RevokeLeaked(t.Context(), svc.Host, leaked))
	is.Equal(len(keys), 2)
	is.Equal(keys[0].ID, good.ID)
	is.Equal(keys[1].Holder, bob.Identity())
	is.Equal(keys[0], h.read(t, good.ID))
	is.Equal(h.actions(), []string{"api_key.revoked api_key/" + good.ID + " by ", "api_key.revoked api_key/" + disabled.ID + " by "})
	is.True(!h.good(good) && h.good(spared))
	is.Equal(len(must(h.Keys.RevokeLeaked(t.Context(), svc.Host, leaked))), 0)
	store.down.Store(true)
	wantCode(t, errorOf(h.Keys.RevokeLeaked(t.Context(), svc.Host, leaked)), svc.CodeUnavailable, "")
}

// gateway may introspect keys, and nothing else.
var gateway = user("gateway", action.KeysIntrospect)

func TestIntrospectionIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store, clock := counted(t)
		key := issue(t, h, alice)
		must(h.Keys.Introspect(t.Context(), gateway, string(key.Key)))
		pass(flushed)
		is.New(t).Equal(store.count(), 1)
		is.New(t).Equal(h.read(t, key.ID).LastUsedAt, clock.now().Truncate(time.Minute))
	})
}
