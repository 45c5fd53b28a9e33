package svc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// TestNobodyInheritsRights: nothing can be attached to, or be owned by, somebody who is not there yet.
func TestNobodyInheritsRights(t *testing.T) {
	h := hostOf(t, intact)
	for field, bundle := range map[string]string{
		"/attachments/0/principal_id":        `{"attachments":[{"policy_id":"wide","principal_type":"user","principal_id":"carol"}]}`,
		"/attachments/0/policy_id":           `{"attachments":[{"policy_id":"future","principal_type":"user","principal_id":"bob"}]}`,
		"/groups/0/members/0":                `{"groups":[{"id":"team","members":["carol"]}]}`,
		"/service_accounts/0/owner_user_id":  `{"service_accounts":[{"id":"carols","owner_user_id":"carol"}]}`,
		"/attachments/0/principal_id (team)": `{"attachments":[{"policy_id":"wide","principal_type":"user","principal_id":"team"}]}`,
	} {
		wantCode(t, h.tryApply(t, bundle), svc.CodeInvalid, strings.TrimSuffix(field, " (team)"))
	}
	h.apply(t, `{"users":[{"id":"carol"},{"id":"team"}],"policies":[{"id":"future","document":{"version":"2026-03-24","statements":[]}}]}`)
	h.wantDenied(t, user("carol"), recall, notes, "no policy of the user allows")
	h.wantDenied(t, user("team"), recall, notes, "no policy of the user allows")
	h.wantDenied(t, account("carols"), recall, notes, "unknown")
}

// With a user its own sources and templates go, each with its event.
func TestDeletedUserTakesItsOwnRows(t *testing.T) {
	is, h := is.New(t), newHost(t)
	h.apply(t, `{"users":[{"id":"bob"}]}`)
	bob := svc.Principal{Kind: svc.KindUser, ID: "bob", Actions: []string{"template:*"}}
	must(h.MySources.Register(t.Context(), bob, svc.NewSource{URL: acme}))
	h.market.put(acme, "x", content("X", "1"))
	must(h.MyTemplates.Install(t.Context(), bob, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal}))
	h.actions()
	is.NoErr(h.Users.Delete(t.Context(), svc.Host, "bob"))
	got := h.actions()
	slices.Sort(got)
	is.Equal(got, []string{"access.removed user/bob by ", "source.removed source/acme by ", "template.deleted template/x by "})
}

// tryApply is apply of what may be refused.
func (h *host) tryApply(t *testing.T, bundle string) error {
	t.Helper()
	b, err := svc.ParseBundle([]byte(bundle))
	is.New(t).NoErr(err)
	return h.Access.Apply(t.Context(), svc.Host, b)
}
