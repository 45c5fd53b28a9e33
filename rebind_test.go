package svc_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const elsewhere = "https://elsewhere.example/acme"

// A source that is registered anew at another address updates nothing of what came from the old one, until it is re-bound.
func TestRebindSource(t *testing.T) {
	is := is.New(t)
	h, installed := withTemplate(t)
	is.Equal(installed.Origin.URL, acme)
	h.install(t, "x", "y", content("X", "1"))
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: elsewhere, Alias: ptr("acme")})
	is.NoErr(err)
	h.market.put(elsewhere, "x", content("Evil", "2"))
	h.actions()
	asked := len(h.market.asked)
	refused := func() {
		t.Helper()
		_, err := h.Templates.CheckUpdate(t.Context(), admin, "x")
		wantCode(t, err, svc.CodeSourceMoved, "")
		for _, force := range []bool{false, true} {
			_, err = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{Force: force})
			wantCode(t, err, svc.CodeSourceMoved, "")
		}
		_, err = h.Templates.Diff(t.Context(), admin, "x")
		wantCode(t, err, svc.CodeSourceMoved, "")
	}
	refused()
	is.Equal(len(h.market.asked), asked) // nobody
	template, err := h.Templates.Read(t.Context(), admin, "x")
	is.NoErr(err)
	is.Equal(template, installed)

	ids, err := h.Sources.Rebind(t.Context(), admin, "acme")
	is.NoErr(err)
	is.Equal(ids, []string{"x", "y"})
	is.Equal(h.actions(), []string{"template.rebound template/x by admin", "template.rebound template/y by admin"})
	bound, err := h.Templates.Read(t.Context(), admin, "x")
	is.NoErr(err)
	installed.Origin.URL = elsewhere
	is.Equal(bound, installed) // and nothing else of it
	update, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
	is.NoErr(err)
	is.Equal(update.Template.Name, "Evil")
	is.Equal(update.Template.Origin.URL, elsewhere)
	h.actions()
	ids, err = h.Sources.Rebind(t.Context(), admin, "acme")
	is.NoErr(err)
	is.Equal(ids, []string{})
	is.Equal(len(h.actions()), 0)

	// Where it was before, it is not either.
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	_, err = h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})
	is.NoErr(err)
	refused()
}

// An update that began before a source was re-bound does not end with what the old one gave.
func TestReboundDuringAnUpdate(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.market.put(acme, "x", content("Old source's", "2"))
	h.market.during = func() {
		h.market.during = nil
		_, err := h.store.RebindTemplates(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}, elsewhere)
		is.NoErr(err)
	}
	_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{Force: true})
	wantCode(t, err, svc.CodeChanged, "")
}

func TestRebindFails(t *testing.T) {
	h, _ := withTemplate(t)
	_, err := h.Sources.Rebind(t.Context(), admin, "..")
	wantCode(t, err, svc.CodeInvalid, "name")
	_, err = h.Sources.Rebind(t.Context(), alice, "acme")
	wantCode(t, err, svc.CodeForbidden, "")
	_, err = h.Sources.Rebind(t.Context(), admin, "gone")
	wantCode(t, err, svc.CodeNotFound, "")
}
