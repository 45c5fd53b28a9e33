package svc_test

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// interrupted is a store in which something happens before the next transaction begins.
type interrupted struct {
	svc.FullStore
	before func()
}

func (s *interrupted) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.FullStore.Atomically(ctx, fn)
}

// anewWorld has alice with a service account, and bob.
const anewWorld = `{"users": [{"id": "alice"}, {"id": "bob"}], "service_accounts": [{"id": "ci", "owner_user_id": "alice"}],
	"attachments": [{"policy_id": "template:user", "principal_type": "user", "principal_id": "alice"},
		{"policy_id": "iam:self-service", "principal_type": "user", "principal_id": "alice"}]}`

// withInterruption returns a host, and a function that makes a user or service account anew, with the same rights but another owner,
// before the next transaction.
func withInterruption(t *testing.T) (h *host, replace func()) {
	t.Helper()
	var store *interrupted
	h = newHost(t, func(c *svc.Config) {
		store = &interrupted{FullStore: c.Store.(svc.FullStore)}
		c.Store = store
	})
	h.apply(t, anewWorld)
	h.market.put(acme, "x", content("X", "1"))
	h.register(t, "acme")
	return h, func() {
		store.before = func() {
			is := is.New(t)
			is.NoErr(h.Users.Delete(t.Context(), svc.Host, "alice"))
			h.apply(t, anewWorld)
			h.apply(t, `{"service_accounts": [{"id": "ci", "owner_user_id": "bob"}]}`)
		}
	}
}

// What the key of a user or of its service account began before the deletion does not come to another user with that id.
func TestNothingOfACallComesToAnotherUser(t *testing.T) {
	for what, call := range map[string]func(h *host, by svc.Principal) error{
		"create": func(h *host, by svc.Principal) error {
			_, err := h.MyTemplates.Create(t.Context(), by, svc.NewTemplate{ID: "x", Content: content("X", "1")})
			return err
		},
		"install": func(h *host, by svc.Principal) error {
			_, err := h.MyTemplates.Install(t.Context(), by, svc.Install{TemplateID: "x", SourceName: "acme"})
			return err
		},
		"register": func(h *host, by svc.Principal) error {
			_, err := h.MySources.Register(t.Context(), by, svc.NewSource{URL: acme})
			return err
		},
	} {
		for _, who := range []svc.Principal{alice, account("ci")} {
			t.Run(what+" by "+string(who.Kind), func(t *testing.T) {
				is := is.New(t)
				h, replace := withInterruption(t)
				by := h.principal(t, issue(t, h, who))
				replace()
				wantCode(t, call(h, by), svc.CodeUnauthenticated, "")
				is.Equal(len(collect(t, h.MyTemplates.List(t.Context(), alice, svc.TemplateQuery{}))), 0)
				is.Equal(len(collect(t, h.MySources.List(t.Context(), alice))), 0)
			})
		}
	}
}

// An owner issues no key for a service account that is another's by the time of the transaction.
func TestNoKeyOfAnAccountOfAnother(t *testing.T) {
	is := is.New(t)
	h, replace := withInterruption(t)
	replace()
	_, err := h.Keys.Issue(t.Context(), alice, svc.MyAccount("ci"), svc.NewAPIKey{})
	wantCode(t, err, svc.CodeNotFound, "")
	is.Equal(len(collect(t, h.Keys.List(t.Context(), svc.Host, account("ci").Identity(), svc.KeyQuery{}))), 0)
}

// deaf is the store of another process whose follower hears nothing.
type deaf struct{ svc.FullStore }

func (s deaf) AwaitChange(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// A user whom KnownUser knows by its row is deleted before its key is issued. The Service has cached
// that the user has no row.
func TestNoKeyForAKnownUserThatIsDeleted(t *testing.T) {
	for holder, want := range map[svc.Identity]svc.Code{alice.Identity(): svc.CodeNotFound, svc.Me: svc.CodeForbidden} {
		is := is.New(t)
		here := newHost(t)
		here.apply(t, staff)
		there := newHost(t, func(c *svc.Config) {
			c.Store = deaf{here.store.(svc.FullStore)}
			c.KnownUser = func(ctx context.Context, id string) (bool, error) {
				_, err := here.Users.Read(ctx, svc.Host, id)
				is.NoErr(here.Users.Delete(ctx, svc.Host, id))
				return err == nil, nil
			}
		})
		d, err := there.Decide(t.Context(), alice, svc.ActionUsersRead, "*", svc.Context{})
		is.NoErr(err)
		is.True(!d.Allowed())
		here.apply(t, `{"users": [{"id": "alice"}]}`)
		by := user("root")
		if holder == svc.Me {
			by = alice
		}
		_, err = there.Keys.Issue(t.Context(), by, holder, svc.NewAPIKey{})
		wantCode(t, err, want, "")
		is.Equal(len(collect(t, here.Keys.List(t.Context(), svc.Host, alice.Identity(), svc.KeyQuery{}))), 0)
	}
}
