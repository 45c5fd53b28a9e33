package svc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
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
	return must(h.Keys.Issue(t.Context(), alice, svc.Me, in))
}

// A key is good up to the microsecond of its expiry, remembered or read, and then it is as wrong as any.
func TestKeyExpires(t *testing.T) {
	is, clock := is.New(t), newClock()
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
	must(h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{ExpiresAt: &time.Time{}}))
	is.True(h.good(key))
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
	is, h := is.New(t), newHost(t)
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
		{svc.APIKeyPatch{ExpiresAt: &time.Time{}, Rate: &scarce}, func() { want.ExpiresAt, want.Rate = time.Time{}, scarce }},
		{svc.APIKeyPatch{Rate: &svc.Rate{PerSecond: 0.5, Burst: 6}}, func() { want.Rate.Burst = 6 }},
		{svc.APIKeyPatch{Description: &svc.TextPatch{Value: ptr("d")}}, func() { want.Description = ptr("d") }},
		{svc.APIKeyPatch{Rate: &svc.Rate{}}, func() { want.Rate = svc.Rate{} }},
	} {
		c.apply()
		patched := must(h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, c.patch))
		want.Seal = patched.Seal
		is.Equal(patched, want)
		is.Equal(h.read(t, key.ID), want)
		is.Equal(h.actions(), []string{"api_key.changed api_key/" + key.ID + " by alice"})
		is.Equal(must(h.Keys.Patch(t.Context(), admin, alice.Identity(), key.ID, c.patch)), want)
		is.Equal(h.actions(), nil) // nothing was changed
		is.Equal(h.good(key), !want.Disabled)
		is.True(want.Disabled || h.rateOf(t, key) == want.Rate) // at once
	}

	patching := func(in svc.APIKeyPatch) func(by svc.Principal, of svc.Identity, id string) error {
		return func(by svc.Principal, of svc.Identity, id string) error {
			return errorOf(h.Keys.Patch(t.Context(), by, of, id, in))
		}
	}
	for _, do := range []func(by svc.Principal, of svc.Identity, id string) error{
		patching(svc.APIKeyPatch{}), patching(svc.APIKeyPatch{Disabled: ptr(true)}), func(by svc.Principal, of svc.Identity, id string) error {
			return errorOf(h.Keys.Rotate(t.Context(), by, of, id, svc.Rotation{}))
		},
	} {
		wantCode(t, do(bob, svc.Me, key.ID), svc.CodeNotFound, "")
		wantCode(t, do(alice, svc.Me, "0000"), svc.CodeNotFound, "")
		wantCode(t, do(alice, svc.Me, "a/b"), svc.CodeInvalid, "key_id")
		wantCode(t, do(robot, svc.Me, key.ID), svc.CodeForbidden, "")
		wantCode(t, do(bob, alice.Identity(), key.ID), svc.CodeForbidden, "")
		wantCode(t, do(robot, alice.Identity(), key.ID), svc.CodeForbidden, "")
		is.Equal(svc.ErrorCode(do(admin, svc.Identity{Kind: "ghost", ID: "a/b"}, "a/b")), svc.CodeInvalid)
	}
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Description: &svc.TextPatch{Value: ptr("\x00")}})
	wantCode(t, err, svc.CodeInvalid, "/description")
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
	wantCode(t, errorOf(h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: ptr(false)})), svc.CodeNotFound, "")
	is.True(!h.good(key))
}

// A key that was disabled or revoked in another process is refused here soon, and good again when it was enabled.
func TestDisabledElsewhere(t *testing.T) {
	h, store := watched(t)
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	key := issue(t, h, alice)
	for _, disabled := range []bool{true, false} {
		if disabled {
			h.remembered(t, store, key)
		}
		must(other.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: &disabled}))
		eventually(t, func() bool { return h.good(key) != disabled })
	}
	h.remembered(t, store, key)
	is.New(t).NoErr(other.Keys.Revoke(t.Context(), alice, svc.Me, key.ID))
	eventually(t, func() bool { return !h.good(key) })
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
	is.Equal(must(h.Keys.RevokeAll(t.Context(), admin, alice.Identity())), 2)
	is.Equal(len(h.actions()), 2)
	for _, key := range keys {
		is.True(!h.good(key))
	}
	is.True(h.good(bobs))
	is.Equal(must(h.Keys.RevokeAll(t.Context(), alice, svc.Me)), 0)
	is.Equal(h.actions(), nil)
	is.Equal(must(h.Keys.RevokeAll(t.Context(), bob, svc.Me)), 1)
	wantCode(t, errorOf(h.Keys.RevokeAll(t.Context(), robot, svc.Me)), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Keys.RevokeAll(t.Context(), bob, alice.Identity())), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Keys.RevokeAll(t.Context(), admin, svc.Identity{Kind: svc.KindUser, ID: "a/b"})), svc.CodeInvalid, "user_id")
}

// A sweep takes what has expired before a time, of all holders, and nothing else.
func TestSweep(t *testing.T) {
	is, clock := is.New(t), newClock()
	h, store := watched(t, clock.configure)
	h.apply(t, `{"users":[{"id":"alice"},{"id":"bob"}],"service_accounts":[{"id":"robot","owner_user_id":"alice"}],
		"attachments":[{"policy_id":"iam:admin","principal_type":"user","principal_id":"bob"}]}`)
	issued := func(holder svc.Identity, in svc.NewAPIKey) svc.IssuedKey {
		return must(h.Keys.Issue(t.Context(), svc.Host, holder, in))
	}
	hour := func(n int) svc.NewAPIKey {
		return svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Duration(n) * time.Hour)}
	}
	ever, late := issued(alice.Identity(), svc.NewAPIKey{}), issued(alice.Identity(), hour(25))
	first, second := issued(alice.Identity(), hour(1)), issued(robot.Identity(), hour(2))
	disabled := issued(bob.Identity(), hour(3))
	must(h.Keys.Patch(t.Context(), svc.Host, bob.Identity(), disabled.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
	clock.in(26 * time.Hour)
	h.actions()
	for _, by := range []svc.Principal{alice, robot} {
		wantCode(t, errorOf(h.Keys.Sweep(t.Context(), by, time.Time{})), svc.CodeForbidden, "")
	}
	wantCode(t, errorOf(h.Keys.Sweep(t.Context(), admin, clock.now().Add(time.Microsecond))), svc.CodeInvalid, "/expired_before")
	is.Equal(must(h.Keys.Sweep(t.Context(), admin, first.ExpiresAt)), 0)
	is.Equal(h.actions(), nil)
	n, err := h.Keys.Sweep(t.Context(), admin, time.Time{}) // a day ago the first had expired, and second at that moment
	is.NoErr(err)
	is.Equal(n, 1)
	is.Equal(h.actions(), []string{"api_key.revoked api_key/" + first.ID + " by admin"})
	is.Equal(must(h.Keys.Sweep(t.Context(), user("help", "iam:users:write", "iam:service_accounts:manage"), clock.now())), 2) // bob has more rights
	is.Equal(must(h.Keys.Sweep(t.Context(), svc.Host, clock.now())), 1)
	for _, key := range []svc.IssuedKey{first, second, disabled, late} {
		is.True(!h.read(t, key.ID).RevokedAt.IsZero())
		is.Equal(h.read(t, key.ID).Hash, nil)
	}
	is.True(h.good(ever))
	store.down.Store(true)
	wantCode(t, errorOf(h.Keys.Sweep(t.Context(), svc.Host, time.Time{})), svc.CodeUnavailable, "")
}

// Times of a host may have nanoseconds. Stores get microseconds, and the answer is as if they had kept more.
func TestTimesWithNanoseconds(t *testing.T) {
	is, clock := is.New(t), newClock()
	now := func() time.Time { return clock.now().Add(500) }
	got := 0
	h := newHost(t, func(c *svc.Config) {
		c.Now, c.Events.Keep = now, true
		c.Store = around(c.Store, func(call intercept.Call) error {
			var times []time.Time
			for _, arg := range call.Args {
				switch arg := arg.(type) {
				case svc.APIKey:
					times = append(times, arg.CreatedAt, arg.ExpiresAt)
				case svc.APIKeyPage:
					times = append(times, arg.ExpireBefore, arg.UnusedSince)
				case svc.AuditQuery:
					times = append(times, arg.Since, arg.Until)
				}
			}
			for _, at := range times {
				if got++; at.Nanosecond()%1000 != 0 || at.Location() != time.UTC {
					t.Errorf("%s gets %s", call.Method, at)
				}
			}
			return call.Do()
		})
	})
	key := h.issueWith(t, svc.NewAPIKey{ExpiresAt: now().Add(time.Hour)})
	clock.in(time.Hour) // it expires at this microsecond
	listed := func(q svc.KeyQuery) int {
		return len(collect(t, h.Keys.List(t.Context(), svc.Host, svc.AllHolders, q)))
	}
	is.Equal(listed(svc.KeyQuery{ExpireBefore: now()}), 1)
	is.Equal(listed(svc.KeyQuery{ExpireBefore: key.ExpiresAt}), 0)
	is.Equal(listed(svc.KeyQuery{UnusedSince: key.CreatedAt.Add(1)}), 1)
	is.Equal(listed(svc.KeyQuery{UnusedSince: key.CreatedAt}), 0)
	both := svc.KeyQuery{ExpireBefore: now(), UnusedSince: now()}
	wantCode(t, lastError(h.Keys.List(t.Context(), svc.Host, svc.AllHolders, both)), svc.CodeInvalid, "unused_since")
	is.Equal(len(collect(t, h.Audit.Records(t.Context(), svc.Host, svc.AuditQuery{Until: key.CreatedAt.Add(1)}))), 1)
	is.Equal(must(h.Keys.Sweep(t.Context(), svc.Host, now())), 1)
	is.True(got > 10)
	for _, at := range []time.Time{time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		for field, q := range map[string]svc.KeyQuery{"expires_before": {ExpireBefore: at}, "unused_since": {UnusedSince: at}, "cursor": {AfterTime: at}} {
			wantCode(t, lastError(h.Keys.List(t.Context(), svc.Host, svc.AllHolders, q)), svc.CodeInvalid, field)
		}
		wantCode(t, errorOf(h.Keys.Sweep(t.Context(), svc.Host, at)), svc.CodeInvalid, "/expired_before")
	}
}

// A sweep has several transactions, and passes over what was prolonged or revoked since it was listed.
func TestSweepAgainstOthers(t *testing.T) {
	is, clock := is.New(t), newClock()
	h, _ := watched(t, clock.configure)
	var keys []svc.IssuedKey
	for range 600 {
		keys = append(keys, h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Hour + time.Duration(len(keys))*time.Second)}))
	}
	clock.in(48 * time.Hour)
	lists := 0
	other := newHost(t, clock.configure, func(c *svc.Config) {
		c.Store = around(h.store, func(call intercept.Call) error {
			err := call.Do()
			if call.Method == "APIKeys" {
				if lists++; lists == 1 {
					is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, keys[1].ID))
					must(h.Keys.Patch(t.Context(), alice, svc.Me, keys[3].ID, svc.APIKeyPatch{ExpiresAt: &time.Time{}}))
				}
			}
			return err
		})
	})
	is.Equal(must(other.Keys.Sweep(t.Context(), admin, time.Time{})), 598)
	is.Equal(lists, 5) // three chunks, one of them twice, and the end
	is.True(h.good(keys[3]))
}

func TestRotate(t *testing.T) {
	is, clock := is.New(t), newClock()
	h, store := watched(t, clock.configure)
	old := must(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{
		Description: ptr("laptop"), ExpiresAt: clock.now().Add(48 * time.Hour), Rate: scarce, ScopingPolicyID: svc.PolicyBankReadOnly,
	}))
	h.remembered(t, store, old)
	h.actions()
	clock.in(time.Hour)
	next := must(h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, svc.Rotation{Overlap: 2 * time.Hour}))
	is.Equal([]any{*next.Description, next.CreatedAt, next.Rate, next.ScopingPolicyID}, []any{"laptop", clock.now(), scarce, svc.PolicyBankReadOnly})
	is.Equal(next.ExpiresAt, clock.now().Add(48*time.Hour)) // as long as the old one lived
	is.Equal(h.read(t, next.ID), next.APIKey)
	p := h.principal(t, next)
	is.Equal([]any{p.Identity(), p.Actions, p.ScopingPolicyID, p.Rate()}, []any{alice.Identity(), []string(nil), svc.PolicyBankReadOnly, scarce})
	is.Equal(h.read(t, old.ID).ExpiresAt, clock.now().Add(2*time.Hour))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + next.ID + " by alice", "api_key.changed api_key/" + old.ID + " by alice"})
	is.True(h.good(old) && h.good(next))
	clock.in(2 * time.Hour)
	is.True(!h.good(old) && h.good(next))

	last := must(h.Keys.Rotate(t.Context(), admin, alice.Identity(), next.ID, svc.Rotation{}))
	is.True(!h.good(next) && h.good(last))
	is.Equal(h.actions(), []string{"api_key.issued api_key/" + last.ID + " by admin", "api_key.revoked api_key/" + next.ID + " by admin"})
	end := h.read(t, last.ID).ExpiresAt
	successor := must(h.Keys.Rotate(t.Context(), alice, svc.Me, last.ID, svc.Rotation{Overlap: limits.KeyOverlap}))
	is.Equal(h.read(t, last.ID).ExpiresAt, end) // never later than its own
	is.Equal(h.read(t, last.ID).SuccessorID, successor.ID)

	forever := h.issueWith(t, svc.NewAPIKey{})
	must(h.Keys.Patch(t.Context(), alice, svc.Me, forever.ID, svc.APIKeyPatch{Disabled: ptr(true)}))
	after := must(h.Keys.Rotate(t.Context(), alice, svc.Me, forever.ID, svc.Rotation{Overlap: time.Minute}))
	is.True(after.ExpiresAt.IsZero() && after.Disabled)
}

// The end of an overlap is never taken for the lifetime of a key: a key with a successor is not rotated again.
func TestRotateAgain(t *testing.T) {
	clock := newClock()
	h := newHost(t, clock.configure)
	h.apply(t, `{"users":[{"id":"alice"}],"service_accounts":[{"id":"robot","owner_user_id":"alice"}]}`)
	owner := svc.Principal{Kind: svc.KindUser, ID: "alice", Actions: []string{action.AccountKeysWrite}}
	for name, c := range map[string]struct {
		by     svc.Principal
		holder svc.Identity
	}{
		"mine": {alice, svc.Me}, "a user's": {admin, alice.Identity()}, "an account's": {svc.Host, robot.Identity()}, "of my account": {owner, svc.MyAccount("robot")},
	} {
		for _, lifetime := range []time.Duration{0, 90 * 24 * time.Hour} {
			t.Run(name+lifetime.String(), func(t *testing.T) {
				is := is.New(t)
				rotate := func(id string, overlap time.Duration) (svc.IssuedKey, error) {
					clock.in(time.Second)
					return h.Keys.Rotate(t.Context(), c.by, c.holder, id, svc.Rotation{Overlap: overlap})
				}
				patch := func(id string, at time.Time) {
					must(h.Keys.Patch(t.Context(), c.by, c.holder, id, svc.APIKeyPatch{ExpiresAt: &at}))
				}
				lives := func(key svc.IssuedKey, err error) svc.IssuedKey {
					is.NoErr(err)
					is.Equal(key.ExpiresAt.IsZero(), lifetime == 0)
					if lifetime > 0 {
						is.Equal(key.ExpiresAt.Sub(key.CreatedAt), lifetime)
					}
					return key
				}
				in := svc.NewAPIKey{}
				if lifetime > 0 {
					in.ExpiresAt = clock.now().Add(lifetime)
				}
				old := must(h.Keys.Issue(t.Context(), c.by, c.holder, in))
				next := lives(rotate(old.ID, time.Hour))
				refused := func() {
					for _, overlap := range []time.Duration{0, time.Hour} {
						_, err := rotate(old.ID, overlap)
						wantCode(t, err, svc.CodeExists, "")
						is.True(strings.Contains(err.Error(), next.ID))
					}
				}
				refused()
				patch(old.ID, clock.now().Add(2*time.Hour)) // a longer overlap
				refused()
				last := lives(rotate(next.ID, time.Minute))
				is.NoErr(h.Keys.Revoke(t.Context(), c.by, c.holder, next.ID))
				refused()
				patch(old.ID, time.Time{}) // the rotation is undone
				is.True(must(rotate(old.ID, 0)).ExpiresAt.IsZero())
				lives(rotate(last.ID, 0))
			})
		}
	}
}

func TestRotateIsRefused(t *testing.T) {
	h := newHost(t)
	key := issue(t, h, alice)
	for _, overlap := range []time.Duration{-1, limits.KeyOverlap + 1} {
		wantCode(t, errorOf(h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, svc.Rotation{Overlap: overlap})), svc.CodeInvalid, "/overlap_seconds")
		_, err := h.Keys.Rotate(t.Context(), svc.Host, alice.Identity(), key.ID, svc.Rotation{Overlap: overlap})
		wantCode(t, err, svc.CodeInvalid, "/overlap_seconds")
	}
	is.New(t).True(h.good(key))
}

// A key that was rotated lives as long as the rotation says: it does not move its own end to later, nor does any other key move its own.
func TestKeyDoesNotProlongItself(t *testing.T) {
	is, clock := is.New(t), newClock()
	h := newHost(t, clock.configure)
	old := issue(t, h, alice)
	p := h.principal(t, old)
	next := must(h.Keys.Rotate(t.Context(), p, svc.Me, old.ID, svc.Rotation{Overlap: time.Hour}))
	end := clock.now().Add(time.Hour)
	at := func(d time.Duration) *time.Time { return ptr(end.Add(d)) }
	for _, later := range []*time.Time{at(time.Microsecond), at(1000 * time.Hour), {}} {
		wantCode(t, errorOf(h.Keys.Patch(t.Context(), p, svc.Me, old.ID, svc.APIKeyPatch{ExpiresAt: later})), svc.CodeForbidden, "")
	}
	is.Equal(h.read(t, old.ID).ExpiresAt, end)
	for _, allowed := range []svc.APIKeyPatch{
		{Description: &svc.TextPatch{Value: ptr("old")}}, {ExpiresAt: at(0)}, {ExpiresAt: at(-time.Minute)},
	} {
		must(h.Keys.Patch(t.Context(), p, svc.Me, old.ID, allowed))
	}
	must(h.Keys.Patch(t.Context(), h.principal(t, next), svc.Me, old.ID, svc.APIKeyPatch{ExpiresAt: at(time.Minute)})) // its holder may, by another key or a session
	clock.in(time.Hour + time.Minute)
	is.True(!h.good(old))

	h.apply(t, narrowWorld)
	mine := h.issueWith(t, svc.NewAPIKey{ExpiresAt: clock.now().Add(time.Hour)})
	_, err := h.Keys.Patch(t.Context(), h.principal(t, mine), alice.Identity(), mine.ID, svc.APIKeyPatch{ExpiresAt: &time.Time{}})
	wantCode(t, err, svc.CodeForbidden, "") // as an administrator of its own holder's keys neither
}

// A changed prefix ends the keys before it, unless it is an earlier one: those stay good for all that
// a key is good for, and their successors have the new prefix.
func TestEarlierPrefixes(t *testing.T) {
	is, h := is.New(t), hostOf(t, world)
	account := svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"}
	own := must(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
	cis := must(h.Keys.Issue(t.Context(), svc.Host, account, svc.NewAPIKey{}))
	renamed := func(users, accounts []string) *host {
		return newHost(t, func(c *svc.Config) {
			c.Store = h.store
			c.Keys.UserPrefix, c.Keys.ServiceAccountPrefix = "acmeu_", "acmes_"
			c.Keys.EarlierUserPrefixes, c.Keys.EarlierServiceAccountPrefixes = users, accounts
		})
	}
	is.True(!renamed(nil, nil).good(own))
	swapped := renamed([]string{"svcs_"}, []string{"svcu_"}) // of the other kind
	is.True(!swapped.good(own) && !swapped.good(cis))
	now := renamed([]string{"older_", "svcu_"}, []string{"svcs_"})
	is.True(now.good(own) && now.good(cis))
	next := must(now.Keys.Rotate(t.Context(), svc.Host, alice.Identity(), own.ID, svc.Rotation{Overlap: time.Hour}))
	is.True(now.good(next) && strings.HasPrefix(string(next.Key), "acmeu_"))
	is.Equal(len(must(now.Keys.RevokeLeaked(t.Context(), svc.Host, []string{string(own.Key), string(cis.Key)}))), 2)
	is.True(!now.good(own) && !now.good(cis) && now.good(next))
}

// TestWhoMakesKeys has everybody issue, rotate, change and take over keys of everybody: who may do one may do all.
func TestWhoMakesKeys(t *testing.T) {
	h := hostOf(t, staff, importing)
	holders := map[string]svc.Identity{
		"mine": svc.Me, "plain": user("plain").Identity(), "root": user("root").Identity(), "helper": user("helper").Identity(),
		"peer": user("peer").Identity(), "its account": account("ops").Identity(), "sibling": account("reader").Identity(),
	}
	for _, c := range []struct {
		by    svc.Principal
		whose string
	}{
		{user("plain"), "mine"},
		{user("helper"), "mine plain helper peer"}, // which only reads and writes users
		{user("root"), "mine plain root helper peer its account sibling"},
		{account("ops"), ""},
		{account("reader"), ""},
		{svc.Principal{Kind: svc.KindUser, ID: "root", ScopingPolicyID: "all"}, ""},
		{user("nobody"), "mine"},
	} {
		for name, holder := range holders {
			of := holder
			if holder == svc.Me {
				of = user(c.by.ID).Identity()
			}
			key := must(h.Keys.Issue(t.Context(), svc.Host, of, svc.NewAPIKey{}))
			for what, do := range h.makes(t, c.by, holder, key.ID) {
				if what == "rotate" || what == "import" && holder == svc.Me {
					continue // the one ends the key, the other is not there for one's own
				}
				if err := do(); allowed(t, err) != strings.Contains(c.whose, name) {
					t.Errorf("%+v: %s, a key of %s: %v", c.by, what, name, err)
				}
			}
		}
	}
}

// makes are the calls that make a key of a holder, or prolong the one with an id.
func (h *host) makes(t *testing.T, by svc.Principal, holder svc.Identity, id string) map[string]func() error {
	ctx, taken := t.Context(), svc.ImportedKey{Prefix: "sk-", Hash: plainDigest(fmt.Sprint("sk-", by.Identity(), holder, id))}
	rotate := func(in svc.Rotation) error { return errorOf(h.Keys.Rotate(ctx, by, holder, id, in)) }
	patch := func(in svc.APIKeyPatch) error { return errorOf(h.Keys.Patch(ctx, by, holder, id, in)) }
	return map[string]func() error{
		"issue":   func() error { return errorOf(h.Keys.Issue(ctx, by, holder, svc.NewAPIKey{})) },
		"import":  func() error { return errorOf(h.Keys.Import(ctx, by, holder, taken)) },
		"rotate":  func() error { return rotate(svc.Rotation{}) },
		"overlap": func() error { return rotate(svc.Rotation{Overlap: time.Hour}) },
		"enable":  func() error { return patch(svc.APIKeyPatch{Disabled: new(false)}) },
		"prolong": func() error { return patch(svc.APIKeyPatch{ExpiresAt: &time.Time{}}) },
	}
}
