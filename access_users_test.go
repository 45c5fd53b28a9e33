package svc_test

import (
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

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
