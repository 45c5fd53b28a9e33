package client_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// The client tells of a key what the Service does.
func TestIntrospect(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	expires := time.Date(2090, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		holder svc.Identity
		in     svc.NewAPIKey
	}{
		{alice, svc.NewAPIKey{}}, {alice, svc.NewAPIKey{ScopingPolicyID: "recalls", ExpiresAt: expires}},
		{svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}, svc.NewAPIKey{}}, {svc.Identity{Kind: svc.KindUser, ID: "Zoë @ home+1&2"}, svc.NewAPIKey{}},
	} {
		issued := must(s.Keys.Issue(t.Context(), svc.Host, c.holder, c.in))
		want := must(s.Keys.Introspect(t.Context(), svc.Host, string(issued.Key)))
		is.True(want.Active)
		is.Equal(must(s.client.Keys.Introspect(t.Context(), string(issued.Key))), want)
		is.NoErr(s.Keys.Revoke(t.Context(), svc.Host, c.holder, issued.ID))
		is.Equal(must(s.client.Keys.Introspect(t.Context(), string(issued.Key))), svc.Introspection{})
	}
	for _, token := range []string{"x", "a&token=b", "a+b%20c\n", strings.Repeat("x", 100_000)} {
		is.Equal(must(s.client.Keys.Introspect(t.Context(), token)), svc.Introspection{})
	}
	_, err := s.client.Keys.Introspect(t.Context(), "")
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	_, err = s.client.As("session-of-alice").Keys.Introspect(t.Context(), "x")
	is.Equal(svc.ErrorCode(err), svc.CodeForbidden)
}

// An answer that says less than it must is no introspection, and no error shows the token.
func TestIntrospectForeignAnswers(t *testing.T) {
	const secret = "svcu_a-secret-to-introspect"
	for _, body := range []string{
		`{}`, `{"sub":"a"}`, `{"active":null}`, `{"active":true}`, `{"active":true,"sub":"a","kind":"user","scope":"read"}`,
		`{"active":true,"sub":"a","kind":"user","scope":"policy:"}`, `{"active":true,"sub":"a","kind":"user","scope":"policy:%zz"}`, secret, `{"active":"` + secret + `"}`,
	} {
		c := dial(t, func(w http.ResponseWriter, r *http.Request) {
			says(200, "application/json", body)(w, r)
		})
		in, err := c.Keys.Introspect(t.Context(), secret)
		if svc.ErrorCode(err) != svc.CodeInternal || in != (svc.Introspection{}) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %+v, %v", body, in, err)
		}
	}
	c := dial(t, says(502, "text/html", strings.Repeat("x", 150)+secret+strings.Repeat("x", 9000)))
	if _, err := c.Keys.Introspect(t.Context(), secret); svc.ErrorCode(err) != svc.CodeUnavailable || strings.Contains(err.Error(), secret[:10]) {
		t.Error(err)
	}
}
