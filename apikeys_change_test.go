package svc_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
)

type clock struct{ micros atomic.Int64 } // moves when a test moves it

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

// A successor lives as long as its predecessor, also for centuries, and at most until the year 9999 ends.
func TestLongLifetime(t *testing.T) {
	is, clock := is.New(t), newClock()
	h := newHost(t, clock.configure)
	key := h.issueWith(t, svc.NewAPIKey{ExpiresAt: time.Date(9998, 1, 1, 0, 0, 0, 999_999_000, time.UTC)})
	for range 2 {
		clock.in(400 * 24 * time.Hour)
		next := must(h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, svc.Rotation{}))
		is.True(next.ExpiresAt.After(key.ExpiresAt))
		is.Equal(next.ExpiresAt.Year(), 9999)
		key = next
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
		for field, q := range map[string]svc.AuditQuery{"since": {Since: at}, "until": {Until: at}} {
			wantCode(t, lastError(h.Audit.Records(t.Context(), svc.Host, q)), svc.CodeInvalid, field)
		}
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

// What was rolled back is not counted.
func TestCountsOfWhatFails(t *testing.T) {
	is, old := is.New(t), newClock()
	var failing atomic.Value // the method that fails once
	failing.Store("")
	h := newHost(t, old.configure, func(c *svc.Config) {
		c.Events.Keep = true
		c.Store = around(c.Store, func(call intercept.Call) error {
			if err := call.Do(); err != nil || !failing.CompareAndSwap(call.Method, "") {
				return err
			}
			return svc.ErrUnavailable
		})
	})
	h.issueWith(t, svc.NewAPIKey{ExpiresAt: old.now().Add(time.Hour)})
	must(h.Audit.Verify(t.Context(), svc.Host))
	for method, call := range map[string]func() (int64, error){
		"EraseAudit": func() (int64, error) { return h.Audit.Forget(t.Context(), svc.Host, alice.Identity(), "gone") },
		"QueueAudit": func() (int64, error) {
			n, err := h.Keys.RevokeAll(t.Context(), svc.Host, alice.Identity())
			return int64(n), err
		},
	} {
		failing.Store(method)
		n, err := call()
		wantCode(t, err, svc.CodeUnavailable, "")
		is.Equal(n, int64(0))
		is.True(must(call()) > 0)
	}
}
