package client_test

import (
	"iter"
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
					return c.Rotate(ctx, h.named, id, overlap)
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
		key.Hash, key.Pepper, key.Seal, key.Holder = nil, "", nil, k.holder
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
