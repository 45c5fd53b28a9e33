package svc_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func keyedDigest(key string) []byte {
	mac := hmac.New(sha512.New, []byte("the other system's secret"))
	mac.Write([]byte(key))
	return mac.Sum(nil)
}

func plainDigest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// importing configures two other systems.
func importing(c *svc.Config) {
	c.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}, {Prefix: "old_live:", Hash: keyedDigest}}
}

const foreign = "sk-6f0c1f0a5c8e4f3b9d7a2e1b4c6d8f00"

func takeOver(t *testing.T, h *host, holder svc.Principal, key string) svc.APIKey {
	t.Helper()
	in := svc.ImportedKey{Prefix: "sk-", Hash: plainDigest(key)}
	if strings.HasPrefix(key, "old_live:") {
		in.Prefix, in.Hash = "old_live:", keyedDigest(key)
	}
	imported, err := h.Keys.Import(t.Context(), svc.Host, holder.Identity(), in)
	if err != nil {
		t.Fatal(err)
	}
	return imported
}

func TestImportedKeyIsAccepted(t *testing.T) {
	is := is.New(t)
	asked := 0
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
		_, err := h.Authenticate(t.Context(), key)
		wantCode(t, err, svc.CodeUnauthenticated, "")
		imported := takeOver(t, h, holder, key)
		is.Equal(h.actions(), []string{"api_key.imported api_key/" + imported.ID + " by "})
		is.Equal(h.read(t, imported.ID), imported)
		is.True(strings.HasSuffix(imported.Prefix, imported.ID))
		by, err := h.Authenticate(t.Context(), key)
		is.NoErr(err)
		is.Equal(by.Identity(), holder.Identity())
		for _, wrong := range []string{key + "x", key[:len(key)-1], key + " ", strings.ToUpper(key[:3]) + key[3:], imported.Prefix, key + strings.Repeat("x", 1000)} {
			_, err = h.Authenticate(t.Context(), wrong)
			wantCode(t, err, svc.CodeUnauthenticated, "")
		}
		is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, holder.Identity(), imported.ID))
		_, err = h.Authenticate(t.Context(), key)
		wantCode(t, err, svc.CodeUnauthenticated, "")
		h.actions()
	}
	is.Equal(asked, 2) // about the prefix in capitals, which is nobody's here
}

// Neither what the other system has kept nor what is kept here is a key, however it is written.
func TestImportedHashIsNoKey(t *testing.T) {
	is := is.New(t)
	h := newHost(t, importing)
	imported := takeOver(t, h, alice, foreign)
	for _, stored := range [][]byte{plainDigest(foreign), imported.Hash, imported.Seal} {
		for _, text := range []string{string(stored), hex.EncodeToString(stored), base64.StdEncoding.EncodeToString(stored), base64.RawURLEncoding.EncodeToString(stored)} {
			for _, prefix := range []string{"", "sk-", "svcu_", imported.Prefix, "svcu_" + imported.ID} {
				_, err := h.Authenticate(t.Context(), prefix+text)
				wantCode(t, err, svc.CodeUnauthenticated, "")
			}
		}
	}
	ours := "svcu_" + imported.ID + hex.EncodeToString(plainDigest(foreign))[:32]
	is.True(!h.good(svc.IssuedKey{Key: svc.Secret(resum(ours))}))
}

// What holds for keys that were issued here holds for those that were taken over.
func TestLifeOfAnImportedKey(t *testing.T) {
	is := is.New(t)
	h, store, clock := counted(t, importing)
	good := func() bool { return h.good(svc.IssuedKey{Key: foreign}) }
	imported := takeOver(t, h, alice, foreign)
	is.True(good())
	h.FlushUses(t.Context())
	is.True(!h.read(t, imported.ID).LastUsedAt.IsZero())

	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, imported.ID, svc.APIKeyPatch{Disabled: new(true)})
	is.NoErr(err)
	is.True(!good())
	_, err = h.Keys.Patch(t.Context(), alice, svc.Me, imported.ID, svc.APIKeyPatch{Disabled: new(false), ExpiresAt: new(clock.now().Add(time.Hour))})
	is.NoErr(err)
	is.True(good())

	two := svc.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
	moved := newHost(t, importing, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, append([]svc.Pepper{two}, c.Keys.Peppers...) })
	clock.in(time.Minute)
	is.True(moved.good(svc.IssuedKey{Key: foreign}))
	is.NoErr(moved.Close())
	is.Equal(h.read(t, imported.ID).Pepper, "2")
	moved = newHost(t, importing, clock.configure, func(c *svc.Config) { c.Store, c.Keys.Peppers = store, []svc.Pepper{two} })
	is.True(moved.good(svc.IssuedKey{Key: foreign}))

	next, err := moved.Keys.Rotate(t.Context(), alice, svc.Me, imported.ID, time.Minute)
	is.NoErr(err)
	is.True(moved.good(next) && strings.HasPrefix(string(next.Key), "svcu_"))
	leaked, err := moved.Keys.RevokeLeaked(t.Context(), svc.Host, []string{foreign})
	is.NoErr(err)
	is.Equal(len(leaked), 1)
	is.True(!moved.good(svc.IssuedKey{Key: foreign}))

	for range 2 {
		_, err = moved.Keys.Import(t.Context(), svc.Host, bob.Identity(), svc.ImportedKey{Prefix: "sk-", Hash: plainDigest(foreign)})
		wantCode(t, err, svc.CodeExists, "hash") // a revoked key does not come back
	}
}

func TestImportRefuses(t *testing.T) {
	is := is.New(t)
	h := newHost(t, importing)
	h.apply(t, world)
	h.actions()
	digest := plainDigest(foreign)
	for field, in := range map[string]svc.ImportedKey{
		"prefix":       {Prefix: "svcu_", Hash: digest},
		"hash":         {Prefix: "sk-", Hash: digest[:15]},
		"/expires_at":  {Prefix: "sk-", Hash: digest, NewAPIKey: svc.NewAPIKey{ExpiresAt: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"/description": {Prefix: "sk-", Hash: digest, NewAPIKey: svc.NewAPIKey{Description: new(strings.Repeat("x", svc.MaxDescriptionLength+1))}},
	} {
		_, err := h.Keys.Import(t.Context(), svc.Host, alice.Identity(), in)
		wantCode(t, err, svc.CodeInvalid, field)
	}
	in := svc.ImportedKey{Prefix: "sk-", Hash: digest}
	for _, by := range []svc.Principal{alice, bob, account("ci"), svc.Unmapped} {
		_, err := h.Keys.Import(t.Context(), by, alice.Identity(), in)
		wantCode(t, err, svc.CodeForbidden, "")
	}
	_, err := h.Keys.Import(t.Context(), svc.Host, svc.Identity{Kind: svc.KindServiceAccount, ID: "none"}, in)
	wantCode(t, err, svc.CodeNotFound, "")
	_, err = newHost(t).Keys.Import(t.Context(), svc.Host, alice.Identity(), in)
	wantCode(t, err, svc.CodeInvalid, "prefix")
	is.Equal(len(h.actions()), 0)
}
