package svc_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/policy"
)

// largeBundle is one of a megabyte, none like another.
func largeBundle(i int) svc.Bundle {
	return held(times(5000, func(n int) string {
		return granting(fmt.Sprintf(`"retain_tags":["%d-%d","%s"]`, i, n, strings.Repeat("x", 100)))
	}))
}

// Nothing is kept of simulations, previews, comparisons and linting, nor of what is refused, to whomever.
func TestNothingIsKeptOfWhatIsNotStored(t *testing.T) {
	if raced {
		t.Skip("what is allocated means nothing with the race detector, and it takes long")
	}
	is := is.New(t)
	h := newHost(t)
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	q := svc.Question{Bank: "b", UserID: "u"}
	try := func(i int) {
		large := largeBundle(i)
		for _, by := range []svc.Principal{svc.Host, plain} {
			_, simulated := h.Policies.Simulate(t.Context(), by, large, q)
			_, previewed := h.Access.Preview(t.Context(), by, large, svc.BundleWrite{})
			is.Equal(simulated == nil && previewed == nil, by.Kind == svc.KindHost)
			is.Equal(svc.ErrorCode(h.Access.Apply(t.Context(), plain, large)), svc.CodeForbidden)
		}
		large.Attachments[0].PolicyID = "none"
		is.Equal(svc.ErrorCode(h.Access.Apply(t.Context(), svc.Host, large)), svc.CodeInvalid)
		_, err := h.Policies.Simulate(t.Context(), svc.Host, large, q)
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	}
	try(0)
	kept, before := svc.Kept(h.Service), heap()
	for i := range 8 {
		try(i + 1)
	}
	is.Equal(svc.Kept(h.Service), kept)
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("%d bytes are kept of 8 MiB of requests", grown)
	}
	runtime.KeepAlive(h)
}

// However large the policies of banks and holders are that are asked about, the copies of them have a bound.
func TestCopiesOfLargePoliciesAreBounded(t *testing.T) {
	if raced {
		t.Skip("what is allocated means nothing with the race detector, and it takes long")
	}
	is := is.New(t)
	h := newHost(t)
	overrides := strings.Join(times(10_000, func(n int) string { return fmt.Sprintf(`{"scope":"topic","value":"%d","strategy":"s"}`, n) }), ",")
	most := int64(0)
	for i := range 80 {
		id := fmt.Sprint("b", i)
		h.write(t, svc.Bundle{
			Users:        []svc.User{{ID: "u" + id}},
			BankPolicies: []svc.BankPolicy{{BankID: id, Document: []byte(`{"version":"2026-03-24","strategy_overrides":[` + overrides + `]}`)}},
		})
		_, err := h.Decide(t.Context(), svc.Principal{Kind: svc.KindUser, ID: "u" + id}, "bank:recall", id, svc.Context{})
		is.NoErr(err)
		most = max(most, svc.Kept(h.Service))
	}
	t.Logf("at most %d bytes", most)
	is.True(most <= policy.MaxKept)
	is.True(most > policy.MaxKept/2)
}
