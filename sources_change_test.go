package svc_test

import (
	"errors"
	"strings"
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
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: elsewhere, Alias: ptr("acme")}))
	h.market.put(elsewhere, "x", content("Evil", "2"))
	h.actions()
	asked := len(h.market.asked)
	refused := func() {
		t.Helper()
		wantCode(t, errorOf(h.Templates.CheckUpdate(t.Context(), admin, "x")), svc.CodeSourceMoved, "")
		for _, edits := range []svc.LocalEdits{"", svc.TakeTheirs} {
			wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: edits})), svc.CodeSourceMoved, "")
		}
		wantCode(t, errorOf(h.Templates.Diff(t.Context(), admin, "x")), svc.CodeSourceMoved, "")
	}
	refused()
	is.Equal(len(h.market.asked), asked) // nobody
	is.Equal(must(h.Templates.Read(t.Context(), admin, "x")), installed)

	is.Equal(must(h.Sources.Rebind(t.Context(), admin, "acme")), []string{"x", "y"})
	is.Equal(h.actions(), []string{"template.rebound template/x by admin", "template.rebound template/y by admin"})
	bound := must(h.Templates.Read(t.Context(), admin, "x"))
	installed.Origin.URL = elsewhere
	is.Equal(bound, installed) // and nothing else of it
	update := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}))
	is.Equal(update.Template.Name, "Evil")
	is.Equal(update.Template.Origin.URL, elsewhere)
	h.actions()
	is.Equal(must(h.Sources.Rebind(t.Context(), admin, "acme")), []string{})
	is.Equal(len(h.actions()), 0)

	// Where it was before, it is not either.
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	refused()
}

// An update that began before a source was re-bound does not end with what the old one gave.
func TestReboundDuringAnUpdate(t *testing.T) {
	h, _ := withTemplate(t)
	h.market.put(acme, "x", content("Old source's", "2"))
	h.market.during = func() {
		h.market.during = nil
		must(h.store.RebindTemplates(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}, elsewhere))
	}
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})), svc.CodeChanged, "")
}

func TestRebindFails(t *testing.T) {
	h, _ := withTemplate(t)
	wantCode(t, errorOf(h.Sources.Rebind(t.Context(), admin, "..")), svc.CodeInvalid, "name")
	wantCode(t, errorOf(h.Sources.Rebind(t.Context(), alice, "acme")), svc.CodeForbidden, "")
	wantCode(t, errorOf(h.Sources.Rebind(t.Context(), admin, "gone")), svc.CodeNotFound, "")
}

// left is what a template does after its source was removed and registered again.
type left struct {
	h       *host
	address string // of the second registration; "": there is none
}

// second removes owner's source as gone does, and lets the next owner register it at an address.
func (l left) second(t *testing.T, gone func(h *host) error) {
	t.Helper()
	is.New(t).NoErr(gone(l.h))
	l.h.apply(t, personalStaff()) // the id has rights again: those of another person
	if l.address == "" {
		return
	}
	l.h.market.put(l.address, "x", content("Evil", "2"))
	must(l.h.MySources.Register(t.Context(), owner, svc.NewSource{URL: l.address, Alias: ptr("acme")}))
	must(l.h.MySources.Rebind(t.Context(), owner, "acme"))
}

// What an administrator installed for the server from a source of its own belongs to that registration alone: nobody who has the
// administrator's id, or its name of a source, later decides what an update brings. Neither does the same person without the right.
func TestServerTemplatesOutliveTheirPersonalSource(t *testing.T) {
	for name, gone := range map[string]func(h *host) error{
		"its user is deleted": func(h *host) error { return h.Users.Delete(t.Context(), admin, "owner") },
		"it is removed":       func(h *host) error { return h.MySources.Remove(t.Context(), owner, "acme") },
		"it is removed, then its user": func(h *host) error {
			return errors.Join(h.MySources.Remove(t.Context(), owner, "acme"), h.Users.Delete(t.Context(), admin, "owner"))
		},
	} {
		for _, address := range []string{"", acme, elsewhere} {
			t.Run(name+" "+address, func(t *testing.T) {
				is := is.New(t)
				h := withPersonalStaff(t)
				must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: ptr("acme")}))
				installed, err := h.Templates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
				is.NoErr(err)
				_, err = h.Templates.CheckUpdates(t.Context(), admin, nil) // keeps what is installed
				is.NoErr(err)
				left{h, address}.second(t, gone)

				_, err = h.Templates.CheckUpdate(t.Context(), admin, "x")
				wantGone(t, err)
				_, err = h.Templates.Diff(t.Context(), admin, "x")
				wantGone(t, err)
				for _, in := range []svc.UpdateRequest{{}, {LocalEdits: svc.TakeTheirs}, {LocalEdits: svc.EditsOverwrite}} {
					_, err = h.Templates.Update(t.Context(), admin, "x", in)
					wantGone(t, err)
				}
				report := must(h.Templates.CheckUpdates(t.Context(), admin, nil))
				is.Equal(report.Checked, 0)
				is.Equal(len(report.Sources), 1) // still shown
				if address == "" {
					is.True(strings.Contains(report.Sources[0].Problem, `"acme"`))
				} else {
					is.True(strings.Contains(report.Templates[0].Problem, `"acme"`))
					is.Equal(report.Templates[0].LatestRevision, (*string)(nil))
				}
				read := must(h.Templates.Read(t.Context(), admin, "x"))
				is.Equal(read.Origin.URL, "")
				installed.Origin.URL = ""
				is.Equal(read, installed) // content, times and attribution
				versions := collect(t, h.Templates.History(t.Context(), admin, "x"))
				is.Equal(len(versions), 0)
			})
		}
	}
}

// wantGone checks for the 404 that names the source.
func wantGone(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, svc.CodeNotFound, "")
	if err != nil && !strings.Contains(err.Error(), `"acme"`) {
		t.Errorf("%v does not name the source", err)
	}
}

// A version from before does not bring the address back.
func TestRollbackBindsNothing(t *testing.T) {
	h := withPersonalStaff(t)
	must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: ptr("acme")}))
	_, err := h.Templates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal})
	is.New(t).NoErr(err)
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("edited")}))
	left{h, acme}.second(t, func(h *host) error { return h.Users.Delete(t.Context(), admin, "owner") })
	must(h.Templates.Rollback(t.Context(), admin, "x", 1))
	_, err = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	wantGone(t, err)
}

// Each half is re-bound by its own callers alone.
func TestRebindKeepsToItsHalf(t *testing.T) {
	is := is.New(t)
	h := withPersonalStaff(t)
	for _, scope := range []svc.Scope{svc.ScopeServer, svc.ScopePersonal} {
		sources := map[svc.Scope]*svc.Sources{svc.ScopeServer: h.Sources, svc.ScopePersonal: h.MySources}[scope]
		name := string(scope) + "-source"
		register := func(address string) {
			must(sources.Register(t.Context(), owner, svc.NewSource{URL: address, Alias: &name}))
		}
		register(acme)
		in := svc.Install{TemplateID: "x", SourceName: name, SourceScope: scope, AliasID: ptr("from-" + string(scope))}
		must(h.MyTemplates.Install(t.Context(), owner, in))
		must(h.Templates.Install(t.Context(), owner, in))
		is.NoErr(sources.Remove(t.Context(), owner, name))
		register(elsewhere)
		h.actions()
		is.Equal(must(sources.Rebind(t.Context(), owner, name)), []string{"from-" + string(scope)})
		is.Equal(h.actions(), []string{"template.rebound template/from-" + string(scope) + " by owner"})
		mine := must(h.MyTemplates.Read(t.Context(), owner, "from-"+string(scope)))
		servers := must(h.Templates.Read(t.Context(), admin, "from-"+string(scope)))
		if scope == svc.ScopeServer {
			is.Equal([]string{mine.Origin.URL, servers.Origin.URL}, []string{acme, elsewhere})
			_, err := h.MyTemplates.CheckUpdate(t.Context(), owner, mine.ID)
			wantCode(t, err, svc.CodeSourceMoved, "")
			is.True(strings.Contains(err.Error(), "install it again"))
		} else {
			is.Equal([]string{mine.Origin.URL, servers.Origin.URL}, []string{elsewhere, ""})
		}
	}
	wantCode(t, errorOf(h.MySources.Rebind(t.Context(), other, "personal-source")), svc.CodeNotFound, "")
}

// A personal source that is removed while the server installs or updates from it binds nothing, also when it is there again by the
// time of the write.
func TestPersonalSourceRemovedMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		for _, installs := range []bool{false, true} {
			is := is.New(t)
			h := withPersonalStaff(t)
			register := func() {
				must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: ptr("acme")}))
			}
			register()
			in := svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal}
			remove := func() {
				h.market.during = nil
				is.NoErr(h.MySources.Remove(t.Context(), owner, "acme"))
				if again {
					register()
				}
			}
			if installs {
				h.market.during = remove
				must(h.Templates.Install(t.Context(), owner, in))
			} else {
				must(h.Templates.Install(t.Context(), owner, in))
				h.market.put(acme, "x", content("X", "2"))
				h.market.during = remove
				wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeChanged, "")
			}
			is.True(h.market.during == nil)
			if !again {
				register()
			}
			h.market.put(acme, "x", content("Evil", "3"))
			_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
			wantGone(t, err)
			is.Equal(must(h.Templates.Read(t.Context(), admin, "x")).Origin.URL, "")
		}
	}
}
