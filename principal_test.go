package svc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/internal/expect"
)

// A caller whose key has ended makes no key in a transaction of the host, where events are kept, and has no answer again. See
// TestWhatWasJudgedBeforeAWaitIsJudgedAgain.
func TestEndedKeysMakeNothingInATransaction(t *testing.T) {
	is, h := is.New(t), newHost(t, func(c *svc.Config) { c.Events.Keep = true })
	key := must(h.Keys.Issue(t.Context(), svc.Host, alice.Identity(), svc.NewAPIKey{}))
	by, once := must(h.Authenticate(t.Context(), string(key.Key))), svc.NewAPIKey{IdempotencyKey: "once"}
	is.NoErr(h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		return errorOf(h.WithTx(tx).Keys.Issue(ctx, by, svc.Me, once))
	}))
	is.NoErr(h.Keys.Revoke(t.Context(), svc.Host, alice.Identity(), key.ID))
	before := keysOf(t, h)
	err := h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
		return errorOf(h.WithTx(tx).Keys.Issue(ctx, by, svc.Me, svc.NewAPIKey{}))
	})
	wantCode(t, err, svc.CodeUnauthenticated, "")
	wantCode(t, errorOf(h.Keys.Issue(t.Context(), by, svc.Me, once)), svc.CodeUnauthenticated, "")
	is.Equal(keysOf(t, h), before)
}

func keysOf(t *testing.T, h *host) []svc.APIKey {
	t.Helper()
	return collect(t, h.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))
}

// deaf is the store of another process whose follower hears nothing.
type deaf struct{ svc.FullStore }

func (s deaf) AwaitChange(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// A user whom Users.Known knows by its row is deleted before its key is issued. The Service has cached
// that the user has no row.
func TestNoKeyForAKnownUserThatIsDeleted(t *testing.T) {
	for holder, want := range map[svc.Identity]svc.Code{alice.Identity(): svc.CodeNotFound, svc.Me: svc.CodeForbidden} {
		is, here := is.New(t), newHost(t)
		here.apply(t, staff)
		there := newHost(t, func(c *svc.Config) {
			c.Store = deaf{here.store.(svc.FullStore)}
			c.Users.Known = func(ctx context.Context, id string) (bool, error) {
				_, err := here.Users.Read(ctx, svc.Host, id)
				is.NoErr(here.Users.Delete(ctx, svc.Host, id))
				return err == nil, nil
			}
		})
		is.True(!must(there.Decide(t.Context(), alice, action.UsersRead, "*", svc.Context{})).Allowed())
		here.apply(t, `{"users": [{"id": "alice"}]}`)
		by := user("root")
		if holder == svc.Me {
			by = alice
		}
		wantCode(t, errorOf(there.Keys.Issue(t.Context(), by, holder, svc.NewAPIKey{})), want, "")
		is.Equal(len(collect(t, here.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))), 0)
	}
}

// Where users are rows, an id without a row gets no key and has no session. An issue for a user with
// a row reads nothing before its transaction, which finds out that the row is gone.
func TestUsersAreRows(t *testing.T) {
	is, here := is.New(t), newHost(t)
	here.apply(t, staff)
	here.apply(t, `{"users": [{"id": "root"}, {"id": "alice"}], "service_accounts": [{"id": "bot", "owner_user_id": "alice"}]}`)
	store := watch(deaf{here.store.(svc.FullStore)})
	there := newHost(t, func(c *svc.Config) { c.Store, c.Users.AreRows, c.Users.RequireKnown = store, true, true })
	issue := func(by svc.Principal, holder svc.Identity) (string, error) {
		issued, err := there.Keys.Issue(t.Context(), by, holder, svc.NewAPIKey{})
		return string(issued.Key), err
	}
	var keys []string
	for _, holder := range []svc.Identity{alice.Identity(), account("bot").Identity()} {
		keys = append(keys, must(issue(user("root"), holder)))
		must(there.Authenticate(t.Context(), keys[len(keys)-1]))
	}
	reads := store.reads.Load()
	must(issue(user("root"), alice.Identity()))
	is.Equal(store.reads.Load(), reads) // all in its transaction
	is.NoErr(there.Accept(t.Context(), alice))

	wantCode(t, errorOf(issue(user("root"), user("nobody").Identity())), svc.CodeNotFound, "")
	wantCode(t, errorOf(issue(user("nobody"), svc.Me)), svc.CodeForbidden, "")
	wantCode(t, there.Accept(t.Context(), user("nobody")), svc.CodeUnauthenticated, "")
	of := must(issue(svc.Host, user("nobody").Identity())) // the host knows what it does
	wantCode(t, errorOf(there.Authenticate(t.Context(), of)), svc.CodeUnauthenticated, "")

	is.NoErr(here.Users.Delete(t.Context(), svc.Host, "alice")) // there, her row is cached
	wantCode(t, errorOf(issue(user("root"), alice.Identity())), svc.CodeNotFound, "")

	_, err := svc.New(svc.Config{Store: store, Users: svc.UserConfig{AreRows: true, Known: func(context.Context, string) (bool, error) { return true, nil }}})
	is.True(err != nil && strings.Contains(err.Error(), "Config.Users.AreRows"))
}

// TestNamesThatNoRecordCanHold: every mutation with an event refuses them and writes nothing.
func TestNamesThatNoRecordCanHold(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		is, w := is.New(t), newWaits(t, true, func(c *svc.Config) { c.Events.Keep = keeps })
		before := w.other.written(t)
		w.actions()
		for _, w.by = range []svc.Principal{
			svc.Host.As(""), svc.Host.As("a\n"), svc.Host.As("\xff"), svc.Host.As("\x00"), svc.Host.As("\x00a"), svc.Host.As("a\x00"),
			svc.Host.As("\u202e"), svc.Host.As(strings.Repeat("a", 129)), svc.Host.As(string(w.key.Key)), {Kind: svc.KindHost, ID: "\n"},
		} {
			calls := w.mutations(t.Context())
			calls["leaked"] = func() error { return errorOf(w.Keys.RevokeLeaked(t.Context(), w.by, []string{string(w.key.Key)})) }
			calls["apply"] = func() error { return w.Access.Apply(t.Context(), w.by, svc.Bundle{Users: []svc.User{{ID: "new"}}}) }
			for name, call := range calls {
				if !strings.HasPrefix(name, "m") { // what is of users alone
					wantCode(t, call(), svc.CodeInvalid, "actor")
				}
			}
		}
		is.Equal(w.other.written(t), before)
		is.Equal(w.actions(), nil)
		is.Equal(len(collect(t, w.Templates.List(t.Context(), svc.Host.As(""), svc.TemplateQuery{}))), 2) // reads need no name
		for _, name := range []string{"a", strings.Repeat("\u4e2d", 128), `https://ci/"job" 7`} {
			must(w.Templates.Patch(t.Context(), svc.Host.As(name), "x", svc.TemplatePatch{Name: &name}))
			is.Equal(w.actions(), []string{"template.patched template/x by " + name})
		}
	}
}

func TestAuthenticator(t *testing.T) {
	is := is.New(t)
	answers := map[string]struct {
		who  svc.Principal
		err  error
		code svc.Code
	}{
		"alice":     {alice, nil, ""},
		"admin":     {admin, nil, ""},
		"robot":     {robot, nil, ""},
		"none":      {svc.Principal{}, fmt.Errorf("session: %w", svc.ErrUnauthenticated), svc.CodeUnauthenticated},
		"down":      {svc.Principal{}, errors.New("the session store is down"), svc.CodeUnavailable},
		"host":      {svc.Host, nil, svc.CodeInternal},
		"odd":       {user("a/b"), nil, svc.CodeInternal},
		"all":       {user("a", "*"), nil, ""},
		"wild":      {user("a", "iam:*", "iam*"), nil, svc.CodeInternal},
		"empty":     {user("a", ""), nil, svc.CodeInternal},
		"svcother":  {bob, nil, ""},
		"svcu_typo": {code: svc.CodeUnauthenticated}, "": {code: svc.CodeUnauthenticated},
	}
	h := newHost(t, func(c *svc.Config) {
		c.Authenticator = svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			expect.Holds(t, !strings.HasPrefix(bearer, "svcu_") && bearer != "", "the host is shown a bearer that is not ours: ", bearer)
			return answers[bearer].who, answers[bearer].err
		})
	})
	for bearer, want := range answers {
		who, err := h.Authenticate(t.Context(), bearer)
		is.Equal(svc.ErrorCode(err), want.code)
		if err == nil {
			is.Equal(who, want.who)
		}
	}
	_, err := h.Authenticate(t.Context(), "wild")
	is.True(strings.Contains(err.Error(), `"iam*"`)) // for the log
	h.apply(t, `{"users":[{"id":"alice","is_active":false}],
		"service_accounts":[{"id":"robot","owner_user_id":"alice","is_active":false}]}`)
	for _, bearer := range []string{"alice", "robot"} {
		wantCode(t, errorOf(h.Authenticate(t.Context(), bearer)), svc.CodeUnauthenticated, "")
	}
}

// Accept judges a principal as Authenticate judges an Authenticator's, and takes none of a key.
func TestAccept(t *testing.T) {
	h, store := watched(t)
	h.apply(t, `{"users":[{"id":"asleep","is_active":false}]}`)
	for who, code := range map[*svc.Principal]svc.Code{
		&alice: "", &admin: "", &robot: "", {Kind: svc.KindUser, ID: "of no row", Actions: []string{"*"}}: "",
		{Kind: svc.KindUser, ID: "asleep"}: svc.CodeUnauthenticated,
		&svc.Host:                          svc.CodeInternal, &svc.Unmapped: svc.CodeInternal, {}: svc.CodeInternal, {Kind: svc.KindUser}: svc.CodeInternal,
		{Kind: svc.KindUser, ID: "a/b"}:                                        svc.CodeInternal,
		{Kind: svc.KindUser, ID: "a", Actions: []string{"iam*"}}:               svc.CodeInternal,
		{Kind: svc.KindUser, ID: "a", ScopingPolicyID: "a/b"}:                  svc.CodeInternal,
		new(must(h.Authenticate(t.Context(), string(issue(t, h, alice).Key)))): svc.CodeInternal,
	} {
		expect.Equal(t, *who, svc.ErrorCode(h.Accept(t.Context(), *who)), code)
	}
	h.apply(t, `{"users":[{"id":"alice","is_active":false}]}`)
	wantCode(t, h.Accept(t.Context(), alice), svc.CodeUnauthenticated, "")
	store.down.Store(true)
	wantCode(t, h.Accept(t.Context(), user("unseen")), svc.CodeUnavailable, "")
	is.New(t).Equal(svc.ErrorCode(h.Accept(t.Context(), svc.Host)), svc.CodeInternal)
}

// StaticToken accepts its token alone, and an empty one accepts nothing.
func TestStaticToken(t *testing.T) {
	for _, c := range []struct{ token, bearer, id string }{
		{"secret", "secret", "admin"}, {"secret", "secreT", ""}, {"secret", "", ""}, {"", "", ""},
	} {
		p, err := svc.StaticToken(c.token, admin).Authenticate(t.Context(), c.bearer)
		expect.Holds(t, p.ID == c.id && errors.Is(err, svc.ErrUnauthenticated) == (c.id == ""), c.bearer, ": ", p, err)
	}
}

// Only the host has names, and the id of a bearer's key is in no JSON of it.
func TestNamesOfPrincipals(t *testing.T) {
	is, h := is.New(t), newHost(t)
	is.Equal([]svc.Principal{alice.As("ops"), svc.Unmapped.As("ops")}, []svc.Principal{alice, svc.Unmapped})
	is.Equal(svc.Host.ID, "")
	by := h.principal(t, issue(t, h, alice))
	is.Equal(string(encoded(by)), `{"Kind":"user","ID":"alice","Actions":null,"ScopingPolicyID":""}`)
	is.True(len(fmt.Sprintf("%+v", by)) < 100)
}
