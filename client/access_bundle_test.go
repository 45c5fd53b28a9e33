package client_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// The whole access goes to a server and comes back as it was.
func TestAccessBothWays(t *testing.T) {
	is := is.New(t)
	s, other, ctx := newSite(t), newSite(t), t.Context()
	have, err := s.client.Access.Export(ctx)
	is.NoErr(err)
	want, err := s.Access.Export(ctx, svc.Host)
	is.NoErr(err)
	is.Equal(have, want)
	is.NoErr(other.Access.Write(ctx, svc.Host, svc.Bundle{}, svc.BundleWrite{Prune: true}))
	is.NoErr(other.client.Access.Write(ctx, have, svc.BundleWrite{}))
	again, err := other.client.Access.Export(ctx)
	is.NoErr(err)
	is.Equal(again, want)

	is.NoErr(s.client.Access.Write(ctx, svc.Bundle{Users: have.Users}, svc.BundleWrite{Prune: true}))
	rest, err := s.client.Access.Export(ctx)
	is.NoErr(err)
	is.Equal(rest, svc.Bundle{Users: have.Users})
	is.NoErr(s.client.Access.Write(ctx, svc.Bundle{}, svc.BundleWrite{Prune: true}))
	rest, err = s.client.Access.Export(ctx)
	is.NoErr(err)
	is.Equal(rest, svc.Bundle{})
}

// A preview is that of the Service, and a dry run writes nothing.
func TestAccessPreview(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	bundle := must(svc.ParseBundle([]byte(`{"groups": [{"id": "staff", "members": ["bob"]}],
	  "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "quick",
	    "public_access": {"default": {"actions": ["bank:recall"], "recall_budget": "mid"}}}}]}`)))
	before := must(s.Access.Export(ctx, svc.Host))
	for _, how := range []svc.BundleWrite{{}, {Prune: true}} {
		if how.Prune {
			bundle.Users = before.Users
		}
		want, err := s.Access.Preview(ctx, svc.Host, bundle, how)
		is.NoErr(err)
		is.True(len(want.Principals) > 0 && len(want.Public) > 0 && len(want.Strategies) > 0)
		have, err := s.client.Access.Preview(ctx, bundle, how)
		is.NoErr(err)
		is.Equal(have, want)
		how.DryRun = true
		is.NoErr(s.client.Access.Write(ctx, bundle, how))
	}
	none, err := s.client.Access.Preview(ctx, svc.Bundle{}, svc.BundleWrite{})
	is.NoErr(err)
	is.Equal(none, svc.AccessDiff{})
	is.Equal(must(s.Access.Export(ctx, svc.Host)), before)
}

func TestAccessRefused(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	unknown := svc.Bundle{Attachments: []svc.Attachment{{PolicyID: "none", Principal: svc.GrantedTo{Type: "user", ID: "bob"}}}}
	for _, dry := range []bool{false, true} {
		err := s.client.Access.Write(ctx, unknown, svc.BundleWrite{DryRun: dry})
		is.Equal(refused(err).Code, svc.CodeInvalid)
		is.Equal(svc.Errors(err)[0].Field, "/attachments/0/policy_id")
		err = s.client.As("session-of-bob").Access.Write(ctx, unknown, svc.BundleWrite{DryRun: dry})
		is.Equal(refused(err).Code, svc.CodeForbidden)
		err = s.client.Access.Write(ctx, svc.Bundle{Users: []svc.User{{ID: "\xff"}}}, svc.BundleWrite{DryRun: dry})
		is.Equal(svc.Errors(err)[0].Field, "/users/0/id")
	}
	_, err := s.client.As("session-of-bob").Access.Export(ctx)
	is.Equal(refused(err).Code, svc.CodeForbidden)
	for _, body := range []string{`null`, `[]`, `{"user": []}`, `{"users": [{"id": "a"}`, `{} {}`} {
		_, err = dial(t, says(http.StatusOK, "application/json", body)).Access.Export(ctx)
		is.True(err != nil)
		is.True(svc.ErrorCode(err) == svc.CodeInternal || svc.ErrorCode(err) == svc.CodeUnavailable)
	}
}

// Keys of all holders come with their holder, in each order.
func TestKeysOfAllHolders(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	robot := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	for i, holder := range []svc.Identity{alice, robot, alice} {
		in := svc.NewAPIKey{ExpiresAt: s.clock().AddDate(0, 0, 9-i), Description: new(strings.Repeat("x", i))}
		_, err := s.Keys.Issue(ctx, svc.Host, holder, in)
		is.NoErr(err)
		s.tick()
	}
	for _, query := range []svc.KeyQuery{
		{}, {Limit: 2}, {ExpireBefore: s.clock().AddDate(0, 0, 8)}, {UnusedSince: s.clock().Add(-time.Second)}, {UnusedSince: s.clock(), Limit: 1},
	} {
		want := must(all(s.Keys.List(ctx, svc.Host, svc.AllHolders, query)))
		for i := range want {
			want[i].Hash, want[i].Pepper, want[i].Seal = nil, "", nil
		}
		is.True(len(want) > 0)
		have, err := all(s.client.Keys.List(ctx, svc.AllHolders, query))
		is.NoErr(err)
		is.Equal(have, want)
		query.AfterTime, query.AfterID, query.Limit = query.Position(want[0]), want[0].ID, 0
		rest := must(all(s.Keys.List(ctx, svc.Host, svc.AllHolders, query)))
		have, err = all(s.client.Keys.List(ctx, svc.AllHolders, query))
		is.NoErr(err)
		is.Equal(len(have), len(rest))
	}
	_, err := all(s.client.Keys.List(ctx, alice, svc.KeyQuery{UnusedSince: s.clock()}))
	is.Equal(refused(err).Code, svc.CodeInvalid)
	_, err = all(s.client.As("session-of-bob").Keys.List(ctx, svc.AllHolders, svc.KeyQuery{}))
	is.Equal(refused(err).Code, svc.CodeForbidden)
	is.Equal(svc.ErrorCode(s.client.Keys.RevokeAll(context.Background(), svc.AllHolders)), svc.CodeInvalid)
}
