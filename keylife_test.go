package svc_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// clock shows a time that a test sets.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(time.Date(2026, 11, 21, 9, 0, 30, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *clock) in(d time.Duration)       { c.micros.Add(d.Microseconds()) }
func (c *clock) configure(to *svc.Config) { to.Now = c.now }
func (h *host) good(key svc.IssuedKey) bool {
	_, err := h.Authenticate(context.Background(), string(key.Key))
	return err == nil
}

func (h *host) issueWith(t *testing.T, in svc.NewAPIKey) svc.IssuedKey {
	t.Helper()
	issued, err := h.Keys.Issue(t.Context(), alice, svc.Me, in)
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

// A key is good up to the microsecond of its expiry, remembered or read, and then it is as wrong as any.
func TestKeyExpires(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h, store := watched(t, clock.configure)
	zone := time.FixedZone("elsewhere", -3600)
	key := h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Hour + 999).In(zone)})
	is.Equal(key.ExpiresAt, clock.now().Add(time.Hour)) // UTC, microseconds
	clock.in(time.Hour - time.Microsecond)
	h.remembered(t, store, key)
	reads := store.reads.Load()
	clock.in(time.Microsecond)
	_, err := h.Authenticate(t.Context(), string(key.Key))
	wantCode(t, err, svc.CodeUnauthenticated, "")
	if e, _ := errors.AsType[*svc.Error](err); e.Message != "a valid bearer token is required" {
		t.Error(e.Message)
	}
	is.Equal(store.reads.Load(), reads) // from memory, as a good one
	elsewhere := newHost(t, clock.configure, func(c *svc.Config) { c.Store = h.store })
	is.True(!elsewhere.good(key))
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 1) // it is there to be prolonged
	_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{ExpiresAt: &time.Time{}})
	is.NoErr(err)
	is.True(h.good(key))
}

func TestExpiryLiesInTheFuture(t *testing.T) {
	clock := newClock()
	h := newHost(t, clock.configure)
	key := issue(t, h, alice)
	for _, at := range []time.Time{
		clock.now(), clock.now().Add(-time.Hour), clock.now().Add(999), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("west", -3600)),
	} {
		_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{ExpiresAt: at})
		wantCode(t, err, svc.CodeInvalid, "/expires_at")
		_, err = h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{ExpiresAt: at})
		wantCode(t, err, svc.CodeInvalid, "/expires_at")
		_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{ExpiresAt: &at})
		wantCode(t, err, svc.CodeInvalid, "/expires_at")
	}
	h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Microsecond)})
	h.issueWith(t, svc.NewAPIKey{ExpiresAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)})
}

// Every way in which a key that was issued is not good takes as many store calls, and answers the same.
func TestDisabledAndExpiredLookLikeRevoked(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h, _ := watched(t, clock.configure)
	revoked, disabled, expired := issue(t, h, alice), issue(t, h, alice), h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Second)})
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, revoked.ID))
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)})
	is.NoErr(err)
	clock.in(time.Minute)
	unseen := &watchedStore{Store: h.store}
	other := newHost(t, clock.configure, func(c *svc.Config) { c.Store = unseen })
	for name, key := range map[string]svc.IssuedKey{"revoked": revoked, "disabled": disabled, "expired": expired} {
		unseen.reads.Store(0)
		_, err := other.Authenticate(t.Context(), string(key.Key))
		wantCode(t, err, svc.CodeUnauthenticated, "")
		if e, _ := errors.AsType[*svc.Error](err); e.Message != "a valid bearer token is required" {
			t.Errorf("%s: %v", name, e)
		}
		is.Equal(unseen.reads.Load(), int64(1))
	}
	other.FlushUses(t.Context())
	for _, key := range []svc.IssuedKey{revoked, disabled, expired} {
		is.True(other.read(t, key.ID).LastUsedAt.IsZero())
	}
}

func (h *host) read(t *testing.T, id string) svc.APIKey {
	t.Helper()
	snapshot, err := h.config.Store.Access(t.Context(), svc.AccessQuery{KeyID: id})
	if err != nil || snapshot.Key == nil {
		t.Fatal(id, err)
	}
	return *snapshot.Key
}

func TestPatchKey(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := h.issueWith(t, svc.NewAPIKey{Description: ptr("laptop")})
	h.actions()
	soon := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	want := key.APIKey
	for _, c := range []struct {
		patch svc.APIKeyPatch
		apply func()
	}{
		{svc.APIKeyPatch{Description: &svc.TextPatch{Value: ptr("")}}, func() { want.Description = ptr("") }},
		{svc.APIKeyPatch{Description: &svc.TextPatch{}}, func() { want.Description = nil }},
		{svc.APIKeyPatch{ExpiresAt: &soon, Disabled: ptr(true)}, func() { want.ExpiresAt, want.Disabled = soon, true }},
		{svc.APIKeyPatch{Disabled: ptr(false)}, func() { want.Disabled = false }},
		{svc.APIKeyPatch{ExpiresAt: &time.Time{}}, func() { want.ExpiresAt = time.Time{} }},
	} {
		c.apply()
		patched, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, c.patch)
		is.NoErr(err)
		want.Seal = patched.Seal
		is.Equal(patched, want)
		is.Equal(h.read(t, key.ID), want)
		is.Equal(h.actions(), []string{"api_key.changed api_key/" + key.ID + " by alice"})
		again, err := h.Keys.Patch(t.Context(), admin, alice.Identity(), key.ID, c.patch)
		is.NoErr(err)
		is.Equal(again, want)
		is.Equal(h.actions(), nil) // nothing was changed
		is.Equal(h.good(key), !want.Disabled)
	}

	for _, patch := range []svc.APIKeyPatch{{}, {Disabled: ptr(true)}} {
		_, err := h.Keys.Patch(t.Context(), bob, svc.Me, key.ID, patch)
		wantCode(t, err, svc.CodeNotFound, "")
		_, err = h.Keys.Patch(t.Context(), alice, svc.Me, "0000", patch)
		wantCode(t, err, svc.CodeNotFound, "")
		_, err = h.Keys.Patch(t.Context(), alice, svc.Me, "a/b", patch)
		wantCode(t, err, svc.CodeInvalid, "key_id")
		_, err = h.Keys.Patch(t.Context(), robot, svc.Me, key.ID, patch)
		wantCode(t, err, svc.CodeForbidden, "")
		_, err = h.Keys.Patch(t.Context(), bob, alice.Identity(), key.ID, patch)
		wantCode(t, err, svc.CodeForbidden, "")
		_, err = h.Keys.Patch(t.Context(), robot, alice.Identity(), key.ID, patch)
		wantCode(t, err, svc.CodeForbidden, "")
		_, err = h.Keys.Patch(t.Context(), admin, svc.Identity{Kind: "ghost", ID: "a/b"}, "a/b", patch)
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	}
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Description: &svc.TextPatch{Value: ptr("\x00")}})
	wantCode(t, err, svc.CodeInvalid, "/description")
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
	_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: ptr(false)})
	wantCode(t, err, svc.CodeNotFound, "")
	is.True(!h.good(key))
}

// A key that was disabled in another process is refused here soon, and good again when it was enabled.
func TestDisabledElsewhere(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	key := issue(t, h, alice)
	for _, disabled := range []bool{true, false} {
		if disabled {
			h.remembered(t, store, key)
		}
		_, err := other.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: &disabled})
		is.NoErr(err)
		eventually(t, func() bool { return h.good(key) != disabled })
	}
}

func TestRevokeAll(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	keys := []svc.IssuedKey{issue(t, h, alice), issue(t, h, alice), issue(t, h, alice)}
	bobs := issue(t, h, bob)
	for _, key := range keys {
		h.remembered(t, store, key)
	}
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, keys[2].ID))
	h.actions()
	n, err := h.Keys.RevokeAll(t.Context(), admin, alice.Identity())
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(len(h.actions()), 2)
	for _, key := range keys {
		is.True(!h.good(key))
	}
	is.True(h.good(bobs))
	n, err = h.Keys.RevokeAll(t.Context(), alice, svc.Me)
	is.NoErr(err)
	is.Equal(n, 0)
	is.Equal(h.actions(), nil)
	n, err = h.Keys.RevokeAll(t.Context(), bob, svc.Me)
	is.NoErr(err)
	is.Equal(n, 1)
	_, err = h.Keys.RevokeAll(t.Context(), robot, svc.Me)
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Keys.RevokeAll(t.Context(), bob, alice.Identity())
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Keys.RevokeAll(t.Context(), admin, svc.Identity{Kind: svc.KindUser, ID: "a/b"})
	wantCode(t, err, svc.CodeInvalid, "user_id")
}

func TestRevokeLeaked(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	good, disabled, revoked, spared := issue(t, h, alice), issue(t, h, bob), issue(t, h, alice), issue(t, h, alice)
	_, err := h.Keys.Patch(t.Context(), bob, svc.Me, disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)})
	is.NoErr(err)
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
		_, err := h.Keys.RevokeLeaked(t.Context(), by, leaked)
		wantCode(t, err, svc.CodeForbidden, "")
	}
	is.True(h.good(good))
	keys, err := h.Keys.RevokeLeaked(t.Context(), svc.Host, leaked)
	is.NoErr(err)
	is.Equal(len(keys), 2)
	is.Equal(keys[0].ID, good.ID)
	is.Equal(keys[1].Holder, bob.Identity())
	is.Equal(keys[0], h.read(t, good.ID))
	is.Equal(h.actions(), []string{"api_key.revoked api_key/" + good.ID + " by ", "api_key.revoked api_key/" + disabled.ID + " by "})
	is.True(!h.good(good) && h.good(spared))
	keys, err = h.Keys.RevokeLeaked(t.Context(), svc.Host, leaked)
	is.NoErr(err)
	is.Equal(len(keys), 0)
	store.down.Store(true)
	_, err = h.Keys.RevokeLeaked(t.Context(), svc.Host, leaked)
	wantCode(t, err, svc.CodeUnavailable, "")
}

func TestRotate(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h, store := watched(t, clock.configure)
	old := h.issueWith(t, svc.NewAPIKey{Description: ptr("laptop"), ExpiresAt: clock.now().Add(48 * time.Hour)})
	h.remembered(t, store, old)
	h.actions()
	clock.in(time.Hour)
	next, err := h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, 2*time.Hour)
	is.NoErr(err)
	is.Equal(*next.Description, "laptop")
	is.Equal(next.ExpiresAt, clock.now().Add(48*time.Hour)) // as long as the old one lived
	is.Equal(next.CreatedAt, clock.now())
	is.Equal(h.read(t, next.ID), next.APIKey)
	is.Equal(h.read(t, old.ID).ExpiresAt, clock.now().Add(2*time.Hour))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + next.ID + " by alice", "api_key.changed api_key/" + old.ID + " by alice"})
	is.True(h.good(old) && h.good(next))
	clock.in(2 * time.Hour)
	is.True(!h.good(old) && h.good(next))

	last, err := h.Keys.Rotate(t.Context(), admin, alice.Identity(), next.ID, 0)
	is.NoErr(err)
	is.True(!h.good(next) && h.good(last))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + last.ID + " by admin", "api_key.revoked api_key/" + next.ID + " by admin"})
	end := h.read(t, last.ID).ExpiresAt
	_, err = h.Keys.Rotate(t.Context(), alice, svc.Me, last.ID, svc.MaxKeyOverlap)
	is.NoErr(err)
	is.Equal(h.read(t, last.ID).ExpiresAt, end) // never later than its own

	forever := h.issueWith(t, svc.NewAPIKey{})
	_, err = h.Keys.Patch(t.Context(), alice, svc.Me, forever.ID, svc.APIKeyPatch{Disabled: ptr(true)})
	is.NoErr(err)
	after, err := h.Keys.Rotate(t.Context(), alice, svc.Me, forever.ID, time.Minute)
	is.NoErr(err)
	is.True(after.ExpiresAt.IsZero() && after.Disabled)
}

func TestRotateIsRefused(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := issue(t, h, alice)
	for _, overlap := range []time.Duration{-1, svc.MaxKeyOverlap + 1} {
		_, err := h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, overlap)
		wantCode(t, err, svc.CodeInvalid, "/overlap_seconds")
		_, err = h.Keys.Rotate(t.Context(), svc.Host, alice.Identity(), key.ID, overlap)
		wantCode(t, err, svc.CodeInvalid, "/overlap_seconds")
	}
	_, err := h.Keys.Rotate(t.Context(), bob, svc.Me, key.ID, 0)
	wantCode(t, err, svc.CodeNotFound, "")
	_, err = h.Keys.Rotate(t.Context(), robot, svc.Me, key.ID, 0)
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Keys.Rotate(t.Context(), bob, alice.Identity(), key.ID, 0)
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Keys.Rotate(t.Context(), robot, alice.Identity(), key.ID, 0)
	wantCode(t, err, svc.CodeForbidden, "")
	is.True(h.good(key))
}

// A key that was rotated lives as long as the rotation says: it does not move its own end to later, nor does any other key move its own.
func TestKeyDoesNotProlongItself(t *testing.T) {
	is := is.New(t)
	clock := newClock()
	h := newHost(t, clock.configure)
	old := issue(t, h, alice)
	p := h.principal(t, old)
	next, err := h.Keys.Rotate(t.Context(), p, svc.Me, old.ID, time.Hour)
	is.NoErr(err)
	end := clock.now().Add(time.Hour)
	at := func(d time.Duration) *time.Time { return ptr(end.Add(d)) }
	for _, later := range []*time.Time{at(time.Microsecond), at(1000 * time.Hour), {}} {
		_, err := h.Keys.Patch(t.Context(), p, svc.Me, old.ID, svc.APIKeyPatch{ExpiresAt: later})
		wantCode(t, err, svc.CodeForbidden, "")
	}
	is.Equal(h.read(t, old.ID).ExpiresAt, end)
	for _, allowed := range []svc.APIKeyPatch{
		{Description: &svc.TextPatch{Value: ptr("old")}}, {ExpiresAt: at(0)}, {ExpiresAt: at(-time.Minute)},
	} {
		_, err := h.Keys.Patch(t.Context(), p, svc.Me, old.ID, allowed)
		is.NoErr(err)
	}
	_, err = h.Keys.Patch(t.Context(), h.principal(t, next), svc.Me, old.ID, svc.APIKeyPatch{ExpiresAt: at(time.Minute)})
	is.NoErr(err) // its holder may, by another key or a session
	clock.in(time.Hour + time.Minute)
	is.True(!h.good(old))

	h.apply(t, narrowWorld)
	mine := h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Hour)})
	_, err = h.Keys.Patch(t.Context(), h.principal(t, mine), alice.Identity(), mine.ID, svc.APIKeyPatch{ExpiresAt: &time.Time{}})
	wantCode(t, err, svc.CodeForbidden, "") // as an administrator of its own holder's keys neither
}
