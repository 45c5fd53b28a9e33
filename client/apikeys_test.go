package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/internal/expect"
)

// A client acts only for the caller of its token.
func TestAs(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	mine := must(s.client.As("session-of-alice").Keys.Issue(ctx, svc.Me, svc.NewAPIKey{}))
	is.Equal(len(must(all(s.client.As(mine.Key).Keys.List(ctx, svc.Me, svc.KeyQuery{})))), 1)
	is.Equal(len(must(all(s.client.As("session-of-bob").Keys.List(ctx, svc.Me, svc.KeyQuery{})))), 0)
	is.Equal(svc.ErrorCode(errorOf(s.client.As(mine.Key).Templates.Read(ctx, "a"))), svc.CodeForbidden)

	s.requests()
	is.Equal(svc.ErrorCode(errorOf(s.client.As("").Templates.Read(ctx, "a"))), svc.CodeUnauthenticated)
	for _, bad := range []svc.Secret{"a b", "a\nb", "ä", "a\x00"} {
		refusal := refusal{Code: svc.CodeInvalid, Field: "token", Message: "must be printable ASCII without spaces"}
		is.Equal(refused(errorOf(s.client.As(bad).Templates.Read(ctx, "a"))), refusal)
	}
	is.Equal(len(s.requests()), 0)
	nobody := must(client.New(client.Config{BaseURL: s.server.URL + "/ext/svc"}))
	is.Equal(svc.ErrorCode(errorOf(nobody.Templates.Read(ctx, "a"))), svc.CodeUnauthenticated)
	is.Equal(len(s.requests()), 1)
}

// Keys of all holders come with their holder, in each order.
func TestKeysOfAllHolders(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	robot := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	for i, holder := range []svc.Identity{alice, robot, alice} {
		in := svc.NewAPIKey{ExpiresAt: s.clock().AddDate(0, 0, 9-i), Description: new(strings.Repeat("x", i))}
		must(s.Keys.Issue(ctx, svc.Host, holder, in))
		s.tick()
	}
	is.True(s.accepts(must(s.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})).Key))
	is.NoErr(s.Close()) // writes when keys were used
	is.True(!must(all(s.client.Keys.List(ctx, alice, svc.KeyQuery{})))[0].LastUsedAt.IsZero())
	for _, query := range []svc.KeyQuery{
		{}, {Limit: 2}, {ExpireBefore: s.clock().AddDate(0, 0, 8)}, {UnusedSince: s.clock().Add(-time.Second)}, {UnusedSince: s.clock(), Limit: 1},
	} {
		want := must(all(s.Keys.List(ctx, svc.Host, svc.AllHolders, query)))
		for i := range want {
			want[i].Hash, want[i].Pepper, want[i].Seal = nil, "", nil
		}
		is.True(len(want) > 0)
		is.Equal(must(all(s.client.Keys.List(ctx, svc.AllHolders, query))), want)
		query.AfterTime, query.AfterID, query.Limit = query.Position(want[0]), want[0].ID, 0
		rest := must(all(s.Keys.List(ctx, svc.Host, svc.AllHolders, query)))
		is.Equal(len(must(all(s.client.Keys.List(ctx, svc.AllHolders, query)))), len(rest))
	}
	is.Equal(refused(errorOf(all(s.client.Keys.List(ctx, alice, svc.KeyQuery{UnusedSince: s.clock()})))).Code, svc.CodeInvalid)
	bob := s.client.As("session-of-bob")
	is.Equal(refused(errorOf(all(bob.Keys.List(ctx, svc.AllHolders, svc.KeyQuery{})))).Code, svc.CodeForbidden)
	is.Equal(svc.ErrorCode(s.client.Keys.RevokeAll(context.Background(), svc.AllHolders)), svc.CodeInvalid)
}

// The client tells of a key what the Service does.
func TestIntrospect(t *testing.T) {
	is := is.New(t)
	s := newSite(t)
	expires := time.Date(2090, 1, 2, 3, 4, 5, 0, time.UTC)
	robot, zoe := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}, svc.Identity{Kind: svc.KindUser, ID: "Zoë @ home+1&2"}
	for _, c := range []struct {
		holder svc.Identity
		in     svc.NewAPIKey
	}{{alice, svc.NewAPIKey{}}, {alice, svc.NewAPIKey{ScopingPolicyID: "recalls", ExpiresAt: expires}}, {robot, svc.NewAPIKey{}}, {zoe, svc.NewAPIKey{}}} {
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
	is.Equal(svc.ErrorCode(errorOf(s.client.Keys.Introspect(t.Context(), ""))), svc.CodeInvalid)
	is.Equal(svc.ErrorCode(errorOf(s.client.As("session-of-alice").Keys.Introspect(t.Context(), "x"))), svc.CodeForbidden)
}

// An answer that says less than it must is no introspection, and no error shows the token.
func TestIntrospectForeignAnswers(t *testing.T) {
	const secret = "svcu_a-secret-to-introspect"
	for _, body := range []string{
		`{}`, `{"sub":"a"}`, `{"active":null}`, `{"active":true}`, `{"active":true,"sub":"a","kind":"user","scope":"read"}`,
		`{"active":true,"sub":"a","kind":"user","scope":"policy:"}`, `{"active":true,"sub":"a","kind":"user","scope":"policy:%zz"}`, secret, `{"active":"` + secret + `"}`,
	} {
		in, err := dial(t, says(200, "application/json", body)).Keys.Introspect(t.Context(), secret)
		expect.Holds(t, svc.ErrorCode(err) == svc.CodeInternal && in == (svc.Introspection{}), body, in, err)
		expect.Holds(t, !strings.Contains(fmt.Sprint(err), secret), err)
	}
	c := dial(t, says(502, "text/html", strings.Repeat("x", 150)+secret+strings.Repeat("x", 9000)))
	err := errorOf(c.Keys.Introspect(t.Context(), secret))
	expect.Holds(t, svc.ErrorCode(err) == svc.CodeUnavailable && !strings.Contains(err.Error(), secret[:10]), err)
}
