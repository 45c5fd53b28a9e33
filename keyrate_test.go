package svc_test

import (
	"math"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

var scarce = svc.Rate{PerSecond: 0.5, Burst: 5}

// rateOf is the rate of the principal that a key authenticates.
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
	for _, rate := range []svc.Rate{{}, scarce, {PerSecond: svc.MaxRate, Burst: svc.MaxBurst}, {PerSecond: svc.MinRate, Burst: 1}} {
		key := h.issueWith(t, svc.NewAPIKey{Rate: rate})
		is.Equal(key.Rate, rate)
		is.Equal(h.read(t, key.ID).Rate, rate)
		eventually(t, func() bool { // until it is from memory
			reads := store.reads.Load()
			is.Equal(h.rateOf(t, key), rate)
			return store.reads.Load() == reads
		})
	}
	is.Equal(alice.KeyID(), "")
	is.Equal(svc.Host.Rate(), svc.Rate{})
}

func TestWrongRates(t *testing.T) {
	is := is.New(t)
	h := newHost(t, importing)
	key := h.issueWith(t, svc.NewAPIKey{Rate: scarce})
	h.actions()
	for _, c := range []struct {
		rate   svc.Rate
		fields []string
	}{
		{svc.Rate{Burst: 1}, []string{"/rate/per_second"}}, {svc.Rate{PerSecond: 1}, []string{"/rate/burst"}},
		{svc.Rate{PerSecond: math.NaN(), Burst: 1}, []string{"/rate/per_second"}}, {svc.Rate{PerSecond: math.Inf(1), Burst: 1}, []string{"/rate/per_second"}},
		{svc.Rate{PerSecond: -1, Burst: -1}, []string{"/rate/per_second", "/rate/burst"}},
		{svc.Rate{PerSecond: svc.MinRate / 2, Burst: 1}, []string{"/rate/per_second"}}, {svc.Rate{PerSecond: svc.MaxRate + 1, Burst: 1}, []string{"/rate/per_second"}},
		{svc.Rate{PerSecond: 1, Burst: svc.MaxBurst + 1}, []string{"/rate/burst"}},
	} {
		_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Rate: c.rate})
		is.Equal(wrongFields(err), c.fields)
		_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Rate: &c.rate})
		is.Equal(wrongFields(err), c.fields)
		_, err = h.Keys.Import(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{
			Prefix: "sk-", Hash: plainDigest(foreign), NewAPIKey: svc.NewAPIKey{Rate: c.rate},
		})
		is.Equal(wrongFields(err), c.fields)
	}
	is.Equal(h.actions(), nil)
	is.Equal(h.read(t, key.ID), key.APIKey)
}

func wrongFields(err error) (fields []string) {
	for _, e := range svc.Errors(err) {
		fields = append(fields, e.Field)
	}
	return fields
}

func TestPatchRate(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := h.issueWith(t, svc.NewAPIKey{})
	h.actions()
	for _, rate := range []svc.Rate{scarce, scarce, {PerSecond: 0.5, Burst: 6}, {}} {
		patched, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Rate: &rate})
		is.NoErr(err)
		is.Equal(patched.Rate, rate)
		is.Equal(h.rateOf(t, key), rate) // at once
	}
	is.Equal(len(h.actions()), 3) // the second changed nothing
	_, err := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Description: &svc.TextPatch{Value: new("d")}, Rate: &scarce})
	is.NoErr(err)
	_, err = h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Description: &svc.TextPatch{}})
	is.NoErr(err)
	is.Equal(h.rateOf(t, key), scarce)
}

// A key lowers its own rate, but raises it only with another credential.
func TestKeyAndItsOwnRate(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	key := h.issueWith(t, svc.NewAPIKey{Rate: scarce})
	itself, err := h.Authenticate(t.Context(), string(key.Key))
	is.NoErr(err)
	patch := func(by svc.Principal, rate svc.Rate) error {
		_, err := h.Keys.Patch(t.Context(), by, svc.Me, key.ID, svc.APIKeyPatch{Rate: &rate})
		return err
	}
	for _, higher := range []svc.Rate{{}, {PerSecond: 0.6, Burst: 1}, {PerSecond: 0.1, Burst: 6}} {
		wantCode(t, patch(itself, higher), svc.CodeForbidden, "")
		is.Equal(h.rateOf(t, key), scarce)
	}
	is.NoErr(patch(itself, scarce))
	is.NoErr(patch(itself, svc.Rate{PerSecond: 0.4, Burst: 4}))
	is.NoErr(patch(alice, svc.Rate{}))
	is.NoErr(patch(itself, scarce)) // a key without a rate may set one
}

func TestRateOfSuccessors(t *testing.T) {
	is := is.New(t)
	h := newHost(t, importing)
	old := h.issueWith(t, svc.NewAPIKey{Rate: scarce})
	next, err := h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, time.Hour)
	is.NoErr(err)
	is.Equal(next.Rate, scarce)
	is.Equal(h.rateOf(t, next), scarce)
	is.Equal(h.rateOf(t, old), scarce)

	imported, err := h.Keys.Import(t.Context(), svc.Host, alice.Identity(), svc.ImportedKey{
		Prefix: "sk-", Hash: plainDigest(foreign), NewAPIKey: svc.NewAPIKey{Rate: scarce},
	})
	is.NoErr(err)
	is.Equal(h.rateOf(t, svc.IssuedKey{APIKey: imported, Key: foreign}), scarce)
}

// A repeated request has the same rate, and gets it.
func TestRateOfARepeatedRequest(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	first := h.issueWith(t, svc.NewAPIKey{IdempotencyKey: "k", Rate: scarce})
	is.Equal(h.issueWith(t, svc.NewAPIKey{IdempotencyKey: "k", Rate: scarce}), first)
	for _, other := range []svc.Rate{{}, {PerSecond: 0.5, Burst: 6}} {
		_, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "k", Rate: other})
		is.Equal(svc.ErrorCode(err), svc.CodeKeyReused)
	}
}
