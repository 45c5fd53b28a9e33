package svc_test

import (
	_ "embed"
	"math"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// narrowWorld: alice may do everything on her banks and administer keys; each other policy is there to narrow.
//
//go:embed testdata/narrow.json
var narrowWorld string

func (h *host) principal(t *testing.T, key svc.IssuedKey) svc.Principal {
	return must(h.Authenticate(t.Context(), string(key.Key)))
}

// Where nothing has changed since an administrator's key was judged, an issue for another user reads no
// row of both again. The key ends with its time nevertheless, and stands for its holder only.
func TestNothingIsJudgedAgainWhereNothingHasChanged(t *testing.T) {
	is := is.New(t)
	var h *host
	rows, late := []bool{}, 0
	h = newHost(t, func(c *svc.Config) {
		c.Store = hook(c.Store, hooks{access: func(read *svc.AccessSnapshot, tx bool) error {
			if tx {
				rows = append(rows, read.Key != nil || read.User != nil)
				h.mu.Lock()
				defer h.mu.Unlock()
				h.ticks += late
			}
			return nil
		}})
	})
	h.apply(t, staff)
	hour := h.now().Add(time.Hour)
	root := user("root").Identity()
	key := must(h.Keys.Issue(t.Context(), svc.Host, root, svc.NewAPIKey{ExpiresAt: hour}))
	by := h.principal(t, key)
	issue := func(by svc.Principal) (read []bool, err error) {
		rows = nil
		_, err = h.Keys.Issue(t.Context(), by, alice.Identity(), svc.NewAPIKey{})
		return rows, err
	}
	is.Equal(must(issue(by)), []bool{false})
	other := by
	other.ID, other.Actions = "other", []string{"*"}
	wantCode(t, errorOf(issue(other)), svc.CodeUnauthenticated, "")
	by, late = h.principal(t, key), 2*3600
	wantCode(t, errorOf(issue(by)), svc.CodeUnauthenticated, "")
	is.Equal(len(collect(t, h.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))), 1)
}

func TestNarrowingPolicyGone(t *testing.T) {
	is, h := is.New(t), hostOf(t, narrowWorld)
	key := must(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{ScopingPolicyID: "recall"}))
	lost := hooks{access: func(a *svc.AccessSnapshot, _ bool) error { a.Narrowing = nil; return nil }}
	gone := newHost(t, func(c *svc.Config) { c.Store = hook(h.store, lost) })
	p := gone.principal(t, key)
	d := must(gone.Decide(t.Context(), p, "bank:recall", "notes", svc.Context{}))
	is.True(!d.Allowed())
	is.Equal(d.Reason(), `the scoping policy "recall" that narrows it no longer exists`)
}

var scarce = svc.Rate{PerSecond: 0.5, Burst: 5}

func (h *host) rateOf(t *testing.T, key svc.IssuedKey) svc.Rate {
	t.Helper()
	by, err := h.Authenticate(t.Context(), string(key.Key))
	if err != nil || by.KeyID() != key.ID {
		t.Fatal(by.KeyID(), err)
	}
	return by.Rate()
}

func TestRateOfAPrincipal(t *testing.T) {
	is := is.New(t)
	h, store := watched(t)
	for _, rate := range []svc.Rate{{}, scarce, {PerSecond: limits.Rate, Burst: limits.Burst}, {PerSecond: limits.LeastRate, Burst: 1}} {
		key := h.issueWith(t, svc.NewAPIKey{Rate: rate})
		is.Equal(key.Rate, rate)
		is.Equal(h.read(t, key.ID).Rate, rate)
		eventually(t, func() bool { // until it is from memory
			reads := store.reads.Load()
			is.Equal(h.rateOf(t, key), rate)
			return store.reads.Load() == reads
		})
	}
	for _, none := range []svc.Rate{{PerSecond: math.NaN(), Burst: 1}, {PerSecond: math.Inf(1), Burst: 1}} {
		wantCode(t, errorOf(h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Rate: none})), svc.CodeInvalid, "/rate/per_second")
	}
	is.Equal(alice.KeyID(), "")
	is.Equal(svc.Host.Rate(), svc.Rate{})
}
