package svc_test

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

var (
	alice = svc.Principal{Kind: svc.KindUser, ID: "alice"}
	bob   = svc.Principal{Kind: svc.KindUser, ID: "bob"}
	robot = svc.Principal{Kind: svc.KindServiceAccount, ID: "robot"}
)

func issue(t *testing.T, h *host, who svc.Principal) svc.IssuedKey {
	t.Helper()
	issued, err := h.Keys.Issue(t.Context(), svc.Host, who.Identity(), svc.NewAPIKey{})
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

func TestMyKeys(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	first, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Description: ptr("laptop")})
	is.NoErr(err)
	is.True(regexp.MustCompile(`^svcu_[0-9A-Za-z]{54}$`).MatchString(string(first.Key)))
	is.Equal(first.Prefix, "svcu_"+first.ID)
	is.True(strings.HasPrefix(string(first.Key), first.Prefix))
	is.True(!bytes.Contains(first.Hash, []byte(first.Key)))
	second, err := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	is.NoErr(err)
	is.Equal(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{})), []svc.APIKey{second.APIKey, first.APIKey})
	is.Equal(len(collect(t, h.Keys.List(t.Context(), bob, svc.Me, svc.KeyQuery{}))), 0)

	wantCode(t, h.Keys.Revoke(t.Context(), bob, svc.Me, first.ID), svc.CodeNotFound, "")
	wantCode(t, h.Keys.Revoke(t.Context(), admin, bob.Identity(), first.ID), svc.CodeNotFound, "")
	is.NoErr(h.Keys.Revoke(t.Context(), alice, svc.Me, first.ID))
	wantCode(t, h.Keys.Revoke(t.Context(), alice, svc.Me, first.ID), svc.CodeNotFound, "")
	wantCode(t, h.Keys.Revoke(t.Context(), alice, svc.Me, "a/b"), svc.CodeInvalid, "key_id")
	is.Equal(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{})), []svc.APIKey{second.APIKey})
	is.Equal(h.actions(), []string{
		"api_key.issued api_key/" + first.ID + " by alice",
		"api_key.issued api_key/" + second.ID + " by alice",
		"api_key.revoked api_key/" + first.ID + " by alice",
	})
	_, err = h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{Description: ptr("\x00")})
	wantCode(t, err, svc.CodeInvalid, "/description")
}

func TestServiceAccountsHaveNoKeysOfTheirOwn(t *testing.T) {
	h := newHost(t)
	for _, by := range []svc.Principal{robot, svc.Host, {}} {
		_, err := h.Keys.Issue(t.Context(), by, svc.Me, svc.NewAPIKey{})
		wantCode(t, err, svc.CodeForbidden, "")
		wantCode(t, lastError(h.Keys.List(t.Context(), by, svc.Me, svc.KeyQuery{})), svc.CodeForbidden, "")
		wantCode(t, h.Keys.Revoke(t.Context(), by, svc.Me, "any"), svc.CodeForbidden, "")
	}
}

func TestUserKeys(t *testing.T) {
	is := is.New(t)
	known := func(_ context.Context, id string) (bool, error) {
		if id == "broken" {
			return false, errors.New("the host's database is down")
		}
		return id != "nobody", nil
	}
	h := newHost(t, func(c *svc.Config) { c.KnownUser = known })
	issued, err := h.Keys.Issue(t.Context(), admin, alice.Identity(), svc.NewAPIKey{})
	is.NoErr(err)
	is.Equal(collect(t, h.Keys.List(t.Context(), admin, alice.Identity(), svc.KeyQuery{})), []svc.APIKey{issued.APIKey})
	is.NoErr(h.Keys.Revoke(t.Context(), admin, alice.Identity(), issued.ID))

	for id, code := range map[string]svc.Code{"nobody": svc.CodeNotFound, "broken": svc.CodeInternal} {
		who := svc.Identity{Kind: svc.KindUser, ID: id}
		_, err = h.Keys.Issue(t.Context(), admin, who, svc.NewAPIKey{})
		wantCode(t, err, code, "")
	}
	odd := svc.Identity{Kind: svc.KindUser, ID: "a/b"}
	_, err = h.Keys.Issue(t.Context(), admin, odd, svc.NewAPIKey{})
	wantCode(t, err, svc.CodeInvalid, "user_id")
	wantCode(t, lastError(h.Keys.List(t.Context(), admin, odd, svc.KeyQuery{})), svc.CodeInvalid, "user_id")
	wantCode(t, h.Keys.Revoke(t.Context(), admin, odd, "any"), svc.CodeInvalid, "user_id")
}

// Keys of a user who has left the host are listed, disabled and revoked like any, and no way makes one or prolongs one.
func TestKeysOfWhoHasLeft(t *testing.T) {
	is := is.New(t)
	left, asked := false, 0
	h := newHost(t, func(c *svc.Config) {
		c.Keys.Imports = []svc.KeyImport{{Prefix: "sk-"}}
		c.KnownUser = func(_ context.Context, id string) (bool, error) { asked++; return !left || id != "alice", nil }
	})
	key, other := issue(t, h, alice), issue(t, h, alice)
	is.Equal(asked, 0) // the host's own code knows what it does
	h.issueWith(t, svc.NewAPIKey{IdempotencyKey: "once"})
	is.True(asked > 0)
	left = true

	imported := svc.ImportedKey{Prefix: "sk-", Hash: plainDigest("sk-one")}
	never, on, off := time.Time{}, false, true
	makes := map[string]func(by svc.Principal) error{
		"issue": func(by svc.Principal) error {
			_, err := h.Keys.Issue(t.Context(), by, alice.Identity(), svc.NewAPIKey{})
			return err
		},
		"import": func(by svc.Principal) error {
			_, err := h.Keys.Import(t.Context(), by, alice.Identity(), imported)
			return err
		},
		"rotate": func(by svc.Principal) error {
			_, err := h.Keys.Rotate(t.Context(), by, alice.Identity(), key.ID, 0)
			return err
		},
		"enable": func(by svc.Principal) error {
			_, err := h.Keys.Patch(t.Context(), by, alice.Identity(), key.ID, svc.APIKeyPatch{Disabled: &on})
			return err
		},
		"prolong": func(by svc.Principal) error {
			_, err := h.Keys.Patch(t.Context(), by, alice.Identity(), key.ID, svc.APIKeyPatch{ExpiresAt: &never})
			return err
		},
	}
	for name, make := range makes {
		if err := make(admin); svc.ErrorCode(err) != svc.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, issued := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{})
	_, again := h.Keys.Issue(t.Context(), alice, svc.Me, svc.NewAPIKey{IdempotencyKey: "once"})
	_, rotated := h.Keys.Rotate(t.Context(), alice, svc.Me, key.ID, 0)
	_, enabled := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{Disabled: &on})
	_, prolonged := h.Keys.Patch(t.Context(), alice, svc.Me, key.ID, svc.APIKeyPatch{ExpiresAt: &never})
	for _, err := range []error{issued, again, rotated, enabled, prolonged} {
		wantCode(t, err, svc.CodeForbidden, "")
	}

	is.True(h.good(key)) // what ends it is a revocation, or the user's row
	asked = 0
	is.Equal(len(collect(t, h.Keys.List(t.Context(), admin, alice.Identity(), svc.KeyQuery{}))), 3)
	is.Equal(len(collect(t, h.Keys.List(t.Context(), alice, svc.Me, svc.KeyQuery{}))), 3)
	_, err := h.Keys.Patch(t.Context(), admin, alice.Identity(), key.ID, svc.APIKeyPatch{Disabled: &off})
	is.NoErr(err)
	is.True(!h.good(key))
	is.NoErr(h.Keys.Revoke(t.Context(), admin, alice.Identity(), other.ID))
	wantCode(t, h.Keys.Revoke(t.Context(), admin, alice.Identity(), other.ID), svc.CodeNotFound, "")
	n, err := h.Keys.RevokeAll(t.Context(), admin, alice.Identity())
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(len(collect(t, h.Keys.List(t.Context(), admin, alice.Identity(), svc.KeyQuery{}))), 0)
	is.Equal(asked, 0)
	is.NoErr(makes["issue"](svc.Host))
	is.NoErr(makes["import"](svc.Host))
	is.Equal(asked, 0)
}

func TestKeysOfServiceAccounts(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	_, err := h.Keys.Issue(t.Context(), svc.Host, robot.Identity(), svc.NewAPIKey{})
	wantCode(t, err, svc.CodeNotFound, "")
	_, err = h.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindServiceAccount}, svc.NewAPIKey{})
	wantCode(t, err, svc.CodeInvalid, "sa_id")
	_, err = h.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: "ghost", ID: "x"}, svc.NewAPIKey{})
	wantCode(t, err, svc.CodeInvalid, "kind")

	h.apply(t, `{"users":[{"id":"alice"}],"service_accounts":[{"id":"robot","owner_user_id":"alice"}]}`)
	issued := issue(t, h, robot)
	is.True(strings.HasPrefix(string(issued.Key), "svcs_"))
	who, err := h.Authenticate(t.Context(), string(issued.Key))
	is.NoErr(err)
	is.Equal(who.Identity(), robot.Identity())

	h.apply(t, `{"service_accounts":[{"id":"robot","owner_user_id":"alice","is_active":false}]}`)
	_, err = h.Authenticate(t.Context(), string(issued.Key))
	wantCode(t, err, svc.CodeUnauthenticated, "")
}

// taken is a store in which the first keys' ids are taken.
type takenStore struct {
	svc.Store
	times int
}

func (s *takenStore) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	if s.times--; s.times >= 0 {
		return svc.ErrExists
	}
	return s.Store.CreateAPIKey(ctx, key)
}

func (s *takenStore) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
		in := &takenStore{tx, s.times}
		defer func() { s.times = in.times }()
		return fn(ctx, in)
	})
}

func TestTakenKeyIDsAreDrawnAnew(t *testing.T) {
	h := newHost(t, func(c *svc.Config) { c.Store = &takenStore{c.Store, 3} })
	issue(t, h, alice)
	h = newHost(t, func(c *svc.Config) { c.Store = &takenStore{c.Store, 4} })
	_, err := h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{})
	wantCode(t, err, svc.CodeInternal, "")
}

// A rotation draws anew as well. Until it has found an id, the old key is as it was.
func TestTakenKeyIDsOfRotationsAreDrawnAnew(t *testing.T) {
	is := is.New(t)
	taken := &takenStore{}
	h := newHost(t, func(c *svc.Config) { taken.Store, c.Store = c.Store, taken })
	old := issue(t, h, alice)
	before := h.read(t, old.ID)
	h.actions()
	taken.times = 4
	_, err := h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, 0)
	wantCode(t, err, svc.CodeInternal, "")
	is.Equal(h.read(t, old.ID), before)
	is.Equal(h.actions(), nil)
	taken.times = 3
	next, err := h.Keys.Rotate(t.Context(), alice, svc.Me, old.ID, 0)
	is.NoErr(err)
	is.Equal(keysOf(t, h), []svc.APIKey{next.APIKey})
}
