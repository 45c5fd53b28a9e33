package client_test

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// keyring are the methods for keys, of a user or of the caller.
type keyring struct {
	of        svc.Identity
	holder    svc.Identity // as the interface tells it
	list      func() iter.Seq2[svc.APIKey, error]
	issue     func(svc.NewAPIKey) (svc.IssuedKey, error)
	patch     func(id string, patch svc.APIKeyPatch) (svc.APIKey, error)
	rotate    func(id string, overlap time.Duration) (svc.IssuedKey, error)
	revoke    func(id string) error
	revokeAll func() error
}

// keyrings calls test with the keys of each kind of holder.
func keyrings(t *testing.T, test func(is *is.I, s *site, k keyring)) {
	robot := svc.Identity{Kind: svc.KindServiceAccount, ID: "robot"}
	for name, h := range map[string]struct {
		by             svc.Secret
		of, named, has svc.Identity // has: as the interface tells it
	}{
		"of a user":            {token, alice, alice, alice},
		"my own":               {"session-of-alice", alice, svc.Me, svc.Identity{}},
		"of a service account": {token, robot, robot, robot},
		"of one of mine":       {"session-of-owner", robot, svc.MyAccount("robot"), robot},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := newSite(t), t.Context()
			c := s.client.As(h.by).Keys
			test(is.New(t), s, keyring{
				h.of, h.has,
				func() iter.Seq2[svc.APIKey, error] { return c.List(ctx, h.named, svc.KeyQuery{}) },
				func(in svc.NewAPIKey) (svc.IssuedKey, error) { return c.Issue(ctx, h.named, in) },
				func(id string, patch svc.APIKeyPatch) (svc.APIKey, error) { return c.Patch(ctx, h.named, id, patch) },
				func(id string, overlap time.Duration) (svc.IssuedKey, error) {
					return c.Rotate(ctx, h.named, id, svc.Rotation{Overlap: overlap})
				},
				func(id string) error { return c.Revoke(ctx, h.named, id) },
				func() error { return c.RevokeAll(ctx, h.named) },
			})
		})
	}
}

// keys are those of a holder, as the interface tells them.
func (s *site) keys(k keyring) []svc.APIKey {
	s.t.Helper()
	list := []svc.APIKey{}
	for _, key := range must(all(s.Keys.List(s.t.Context(), svc.Host, k.of, svc.KeyQuery{}))) {
		key.Hash, key.Pepper, key.Seal, key.Holder, key.SuccessorID = nil, "", nil, k.holder, ""
		list = append(list, key)
	}
	return list
}

// accepts reports whether a key is good.
func (s *site) accepts(key svc.Secret) bool {
	_, err := s.Authenticate(s.t.Context(), string(key))
	return err == nil
}

func TestIssuedKeys(t *testing.T) {
	keyrings(t, func(is *is.I, s *site, k keyring) {
		is.Equal(must(all(k.list())), []svc.APIKey{})
		expiry := s.clock().Add(time.Hour + time.Millisecond + 999) // kept to the microsecond
		full, err := k.issue(svc.NewAPIKey{Description: new(""), ExpiresAt: expiry.In(time.FixedZone("", 3600)), ScopingPolicyID: "more", Rate: svc.Rate{PerSecond: 0.3, Burst: 7}})
		is.NoErr(err)
		is.True(s.accepts(full.Key))
		is.Equal(full.ExpiresAt, expiry.Truncate(time.Microsecond))
		is.Equal(full.APIKey, s.keys(k)[0])
		s.tick()
		plain, err := k.issue(svc.NewAPIKey{})
		is.NoErr(err)
		is.True(s.accepts(plain.Key))
		is.Equal(plain.ScopingPolicyID, "")
		is.Equal(must(all(k.list())), []svc.APIKey{plain.APIKey, full.APIKey})
		is.Equal(must(all(k.list())), s.keys(k))

		is.NoErr(k.revoke(plain.ID))
		is.True(!s.accepts(plain.Key))
		is.True(s.accepts(full.Key))
		is.Equal(svc.ErrorCode(k.revoke(plain.ID)), svc.CodeNotFound)
		is.NoErr(k.revokeAll())
		is.True(!s.accepts(full.Key))
		is.NoErr(k.revokeAll())
	})
}

func TestUsedKeys(t *testing.T) {
	keyrings(t, func(is *is.I, s *site, k keyring) {
		is.True(s.accepts(must(k.issue(svc.NewAPIKey{})).Key))
		is.NoErr(s.Close()) // writes when keys were used
		used := must(all(k.list()))
		is.Equal(used, s.keys(k))
		is.True(!used[0].LastUsedAt.IsZero())
	})
}

func TestPatchedKeys(t *testing.T) {
	keyrings(t, func(is *is.I, s *site, k keyring) {
		want := must(k.issue(svc.NewAPIKey{Description: new("d")})).APIKey
		at := s.clock().Add(time.Hour).Truncate(time.Microsecond)
		for _, c := range []struct {
			patch  svc.APIKeyPatch
			change func(*svc.APIKey)
		}{
			{svc.APIKeyPatch{}, func(*svc.APIKey) {}},
			{svc.APIKeyPatch{Description: &svc.TextPatch{}}, func(k *svc.APIKey) { k.Description = nil }},
			{svc.APIKeyPatch{Description: &svc.TextPatch{Value: new("")}}, func(k *svc.APIKey) { k.Description = new("") }},
			{svc.APIKeyPatch{ExpiresAt: &at}, func(k *svc.APIKey) { k.ExpiresAt = at }},
			{svc.APIKeyPatch{Disabled: new(true)}, func(k *svc.APIKey) { k.Disabled = true }},
			{svc.APIKeyPatch{ExpiresAt: new(time.Time)}, func(k *svc.APIKey) { k.ExpiresAt = time.Time{} }},
			{svc.APIKeyPatch{Disabled: new(bool)}, func(k *svc.APIKey) { k.Disabled = false }},
		} {
			got, err := k.patch(want.ID, c.patch)
			is.NoErr(err)
			c.change(&want)
			is.Equal(got, want)
			is.Equal(s.keys(k), []svc.APIKey{want})
		}
	})
}

func TestRotatedKeys(t *testing.T) {
	keyrings(t, func(is *is.I, s *site, k keyring) {
		first := must(k.issue(svc.NewAPIKey{Description: new("d")}))
		second, err := k.rotate(first.ID, time.Hour)
		is.NoErr(err)
		is.Equal(second.Description, new("d"))
		is.True(s.accepts(first.Key) && s.accepts(second.Key))
		is.Equal(len(s.keys(k)), 2)
		third, err := k.rotate(second.ID, 0)
		is.NoErr(err)
		is.True(!s.accepts(second.Key) && s.accepts(third.Key))

		s.requests()
		_, err = k.rotate(third.ID, 1500*time.Millisecond)
		is.Equal(refused(err), refusal{Code: svc.CodeInvalid, Field: "/overlap_seconds", Message: "must be whole seconds"})
		is.Equal(len(s.requests()), 0)
	})
}

// A client acts only for the caller of its token.
func TestAs(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	mine := must(s.client.As("session-of-alice").Keys.Issue(ctx, svc.Me, svc.NewAPIKey{}))
	is.Equal(len(must(all(s.client.As(mine.Key).Keys.List(ctx, svc.Me, svc.KeyQuery{})))), 1)
	is.Equal(len(must(all(s.client.As("session-of-bob").Keys.List(ctx, svc.Me, svc.KeyQuery{})))), 0)
	_, err := s.client.As(mine.Key).Templates.Read(ctx, "a")
	is.Equal(svc.ErrorCode(err), svc.CodeForbidden)

	s.requests()
	_, err = s.client.As("").Templates.Read(ctx, "a")
	is.Equal(svc.ErrorCode(err), svc.CodeUnauthenticated)
	for _, bad := range []svc.Secret{"a b", "a\nb", "ä", "a\x00"} {
		_, err = s.client.As(bad).Templates.Read(ctx, "a")
		is.Equal(refused(err), refusal{Code: svc.CodeInvalid, Field: "token", Message: "must be printable ASCII without spaces"})
	}
	is.Equal(len(s.requests()), 0)
	_, err = must(client.New(client.Config{BaseURL: s.server.URL + "/ext/svc"})).Templates.Read(ctx, "a")
	is.Equal(svc.ErrorCode(err), svc.CodeUnauthenticated)
	is.Equal(len(s.requests()), 1)
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
