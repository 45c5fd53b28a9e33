package svctest_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/svctest"
)

func recall(service *svc.Service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := httpapi.PrincipalFrom(r.Context())
		d, err := service.Decide(r.Context(), who, "bank:recall", r.FormValue("bank"), svc.Context{})
		if err != nil || !d.Allowed() {
			w.WriteHeader(http.StatusForbidden)
		}
	})
}

const staffReads = `{
  "groups": [{"id": "staff", "members": ["alice"]}],
  "policies": [{"id": "staff-reads", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["bank:recall"], "banks": ["support"]}]}}],
  "attachments": [{"policy_id": "staff-reads", "principal_type": "group", "principal_id": "staff"}]
}`

func TestRecall(t *testing.T) {
	server := svctest.New(t)
	server.Mux.Handle("POST /recall", server.API.Protect(recall(server.Service)))

	if status, answer := server.Alice.Do("POST", "/recall?bank=support", ""); status != http.StatusForbidden {
		t.Errorf("alice, who may nothing: %d %s", status, answer)
	}
	server.Apply(staffReads)
	if status, answer := server.Alice.Do("POST", "/recall?bank=support", ""); status != http.StatusOK {
		t.Errorf("alice, as one of the staff: %d %s", status, answer)
	}
}

// offboard ends what a user can do here, and removes all that is stored of the user. The host's own
// user is gone already: its Authenticator and Users.Known refuse the id.
func offboard(ctx context.Context, service *svc.Service, id string) error {
	err := service.ForgetUser(ctx, svc.Host.As("offboarding"), id)
	if svc.ErrorCode(err) == svc.CodeNotFound {
		return nil // nothing is left of the user
	}
	return err
}

// TestLeaving: after offboard nothing of the user is accepted: no key and no key of an account. Rows under the same ids bring no key
// and no right back.
func TestLeaving(t *testing.T) {
	is, left := is.New(t), false
	server := svctest.New(t, svctest.Options{Config: func(c *svc.Config) {
		c.Users.Known = func(_ context.Context, id string) (bool, error) { return !left || id != "carol", nil }
	}})
	server.Apply(`{"users": [{"id": "carol"}], "service_accounts": [{"id": "ci", "owner_user_id": "carol"}],
	  "groups": [{"id": "team", "members": ["carol"]}],
	  "attachments": [{"policy_id": "bank:admin", "principal_type": "user", "principal_id": "carol"}]}`)
	key := func(holder svc.Identity) svc.Secret {
		issued := must(server.Service.Keys.Issue(t.Context(), svc.Host, holder, svc.NewAPIKey{}))
		return issued.Key
	}
	carol, ci := key(svc.Identity{Kind: svc.KindUser, ID: "carol"}), key(svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"})
	good := func(key svc.Secret) bool {
		_, err := server.Service.Authenticate(t.Context(), string(key))
		return err == nil
	}
	left = true
	is.True(good(carol) && good(ci)) // Users.Known alone ends nothing
	is.NoErr(offboard(t.Context(), server.Service, "carol"))
	is.True(!good(carol) && !good(ci))
	is.NoErr(offboard(t.Context(), server.Service, "carol")) // twice is no error
	server.Apply(`{"users": [{"id": "carol"}], "service_accounts": [{"id": "ci", "owner_user_id": "carol"}]}`)
	is.True(!good(carol) && !good(ci))
	rows := must(server.Service.Access.Export(t.Context(), svc.Host))
	is.Equal(rows.Groups[0].Members, []string{})
	for _, attachment := range rows.Attachments {
		is.True(attachment.Principal.ID != "carol")
	}
}
