package svc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

const acme = "https://example.com/acme"

func content(name, version string) svc.Content {
	return svc.Content{Name: name, Tags: []string{"t"}, Manifest: manifest(`{"version":"` + version + `"}`)}
}

// withTemplate is a host that has the template "x", installed from acme.
func withTemplate(t *testing.T) (*host, svc.Template) {
	t.Helper()
	h := newHost(t)
	h.market.put(acme, "x", content("X", "1"))
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	installed := must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"}))
	h.actions()
	return h, installed
}

func revision(t *testing.T, c svc.Content) string {
	t.Helper()
	return must(c.Revision())
}

func TestInstallTemplate(t *testing.T) {
	is := is.New(t)
	h, installed := withTemplate(t)
	is.Equal(installed.ID, "x")
	is.Equal(installed.Name, "X")
	is.Equal(installed.InstalledAt, installed.UpdatedAt)
	is.Equal(installed.Origin.Source, svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"})
	is.Equal(installed.Origin.ID, "x")
	is.Equal(installed.Origin.Revision, revision(t, content("X", "1")))

	aliased, err := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme", AliasID: ptr("y")})
	is.NoErr(err)
	is.Equal(aliased.ID, "y")
	is.Equal(aliased.Origin.ID, "x")
	is.Equal(h.actions(), []string{"template.installed template/y by admin"})
}

func TestInstallTakenAsksNobody(t *testing.T) {
	h, _ := withTemplate(t)
	asked := len(h.market.asked)
	_, err := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"})
	wantCode(t, err, svc.CodeExists, "template_id")
	_, err = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme", AliasID: ptr("x")})
	wantCode(t, err, svc.CodeExists, "/alias_id")
	is.New(t).Equal(len(h.market.asked), asked)
}

func TestInstallTakenMeanwhile(t *testing.T) {
	h, _ := withTemplate(t)
	h.market.put(acme, "z", content("Z", "1"))
	h.market.during = func() { h.market.during = nil; create(t, h, "z", svc.Content{}) }
	_, err := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "z", SourceName: "acme"})
	wantCode(t, err, svc.CodeExists, "template_id")
}

func TestInstallRefuses(t *testing.T) {
	h, _ := withTemplate(t)
	h.market.put(acme, "bad", svc.Content{Name: "bad", Manifest: manifest(`{}`)})
	h.market.put(acme, "worse", svc.Content{Name: "bad", Manifest: manifest(`{"version":"1"`)})
	for _, c := range []struct {
		code  svc.Code
		field string
		in    svc.Install
	}{
		{svc.CodeInvalid, "template_id", svc.Install{TemplateID: "..", SourceName: "acme"}},
		{svc.CodeInvalid, "/source_name", svc.Install{TemplateID: "n"}},
		{svc.CodeInvalid, "/source_name", svc.Install{TemplateID: "n", SourceName: "a/b"}},
		{svc.CodeInvalid, "/source_scope", svc.Install{TemplateID: "n", SourceName: "acme", SourceScope: "world"}},
		{svc.CodeInvalid, "/alias_id", svc.Install{TemplateID: "n", SourceName: "acme", AliasID: ptr("")}},
		{svc.CodeNotFound, "", svc.Install{TemplateID: "n", SourceName: "nobody"}},
		{svc.CodeNotFound, "", svc.Install{TemplateID: "n", SourceName: "acme", SourceScope: svc.ScopePersonal}},
		{svc.CodeNotFound, "", svc.Install{TemplateID: "n", SourceName: "acme"}},
		{svc.CodeSourceFailed, "", svc.Install{TemplateID: "bad", SourceName: "acme"}},
		{svc.CodeSourceFailed, "", svc.Install{TemplateID: "worse", SourceName: "acme"}},
	} {
		wantCode(t, errorOf(h.Templates.Install(t.Context(), admin, c.in)), c.code, c.field)
	}
	if acts := h.actions(); len(acts) > 0 {
		t.Error("something happened:", acts)
	}
}

func TestSourceFaults(t *testing.T) {
	h, _ := withTemplate(t)
	for want, fault := range map[svc.Code]error{
		svc.CodeSourceFailed:  errors.New("dial tcp 10.0.0.1: refused"),
		svc.CodeSourceTimeout: context.DeadlineExceeded,
	} {
		h.market.err = fault
		wantCode(t, errorOf(h.Templates.CheckUpdate(t.Context(), admin, "x")), want, "")
		_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
		wantCode(t, err, want, "")
		e, _ := errors.AsType[*svc.Error](err)
		if e.Err == nil || e.Message == "" || errors.Is(err, context.Canceled) {
			t.Error("the cause is not kept for the log")
		}
	}
}

func TestCheckUpdate(t *testing.T) {
	is := is.New(t)
	h, installed := withTemplate(t)
	check := func() svc.UpdateCheck {
		t.Helper()
		c := must(h.Templates.CheckUpdate(t.Context(), admin, "x"))
		is.Equal(*c.CurrentRevision, installed.Origin.Revision)
		is.Equal(*c.Source, installed.Origin.Source)
		return c
	}
	c := check()
	is.Equal(c.HasUpdate, false)
	is.Equal(c.LatestRevision, c.CurrentRevision)

	h.market.put(acme, "x", content("X", "2"))
	c = check()
	is.Equal(c.HasUpdate, true)
	is.Equal(*c.LatestRevision, revision(t, content("X", "2")))

	h.market.remove(acme, "x")
	c = check()
	is.Equal(c.HasUpdate, false)
	is.Equal(c.LatestRevision, nil)
	_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	wantCode(t, err, svc.CodeNotFound, "")

	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	wantCode(t, errorOf(h.Templates.CheckUpdate(t.Context(), admin, "x")), svc.CodeNotFound, "")
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeNotFound, "")
	is.Equal(must(h.Templates.Read(t.Context(), admin, "x")).Origin.Source.Name, "acme")

	create(t, h, "hand", svc.Content{})
	is.Equal(must(h.Templates.CheckUpdate(t.Context(), admin, "hand")), svc.UpdateCheck{})
	_, err = h.Templates.Update(t.Context(), admin, "hand", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	wantCode(t, err, svc.CodeInvalid, "template_id")
	wantCode(t, errorOf(h.Templates.CheckUpdate(t.Context(), admin, "nothing")), svc.CodeNotFound, "")
	_, err = h.Templates.Update(t.Context(), admin, "nothing", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	wantCode(t, err, svc.CodeNotFound, "")
}

// TestUpdateTable is the table of the contract: what changed at the source, what was edited here, and what an update does.
func TestUpdateTable(t *testing.T) {
	one, two, edited := content("X", "1"), content("X", "2"), content("Edited", "1")
	for _, c := range []struct {
		rule         string
		source, here svc.Content
		force        bool
		updated      bool
		becomes      svc.Content
		refused      bool
	}{
		{"nothing changed", one, one, false, false, one, false},
		{"nothing changed, forced: written again", one, one, true, true, one, false},
		{"the source changed", two, one, false, true, two, false},
		{"the source changed, forced", two, one, true, true, two, false},
		{"edited here: kept", one, edited, false, false, edited, false},
		{"edited here, forced: back to the source", one, edited, true, true, one, false},
		{"both changed: refused", two, edited, false, false, edited, true},
		{"both changed, forced", two, edited, true, true, two, false},
		{"both changed alike: brought up to date", two, two, false, true, two, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			is := is.New(t)
			h, before := withTemplate(t)
			h.market.put(acme, "x", c.source)
			_, err := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: &c.here.Name, Manifest: c.here.Manifest})
			is.NoErr(err)
			h.actions()

			update, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: map[bool]svc.LocalEdits{true: svc.TakeTheirs}[c.force]})
			if c.refused {
				wantCode(t, err, svc.CodeEdited, "")
				e, _ := errors.AsType[*svc.Error](err)
				is.Equal(e.Fields, []string{"name"})
			} else {
				is.NoErr(err)
				is.Equal(update.Updated, c.updated)
				is.Equal(update.PreviousRevision, before.Origin.Revision)
				is.Equal(update.NewRevision, update.Template.Origin.Revision)
			}
			after := must(h.Templates.Read(t.Context(), admin, "x"))
			is.Equal(revision(t, after.Content), revision(t, c.becomes))
			is.Equal(after.InstalledAt, before.InstalledAt)
			is.Equal(len(h.actions()), map[bool]int{true: 1}[c.updated])
			if c.updated {
				is.Equal(after.Origin.Revision, revision(t, c.source))
				is.True(after.UpdatedAt.After(before.UpdatedAt))
				is.Equal(update.Template, after)
			}
		})
	}
}

func TestUpdateSeesWhatWasEditedMeanwhile(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	h.market.put(acme, "x", content("X", "2"))
	h.market.during = func() {
		h.market.during = nil
		_, err := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{
			Description: &svc.TextPatch{Value: ptr("d")}, Category: &svc.TextPatch{Value: ptr("c")},
			Integrations: &[]string{"i"}, Tags: &[]string{}, Manifest: manifest(`{"version":"1","n":1}`),
		})
		is.NoErr(err)
	}
	_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
	wantCode(t, err, svc.CodeEdited, "")
	e, _ := errors.AsType[*svc.Error](err)
	is.Equal(e.Fields, []string{"description", "category", "integrations", "tags", "manifest"})

	h.market.during = func() { h.market.during = nil; is.NoErr(h.Templates.Delete(t.Context(), admin, "x")) }
	_, err = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	wantCode(t, err, svc.CodeNotFound, "")
}

func TestUpdateOfAnotherTemplateOfThatID(t *testing.T) {
	h, _ := withTemplate(t)
	h.market.during = func() {
		h.market.during = nil
		is.New(t).NoErr(h.Templates.Delete(t.Context(), admin, "x"))
		create(t, h, "x", svc.Content{})
	}
	_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})
	wantCode(t, err, svc.CodeChanged, "")
}

func TestWithoutMarketplace(t *testing.T) {
	h, _ := withTemplate(t)
	bare := newHost(t, func(c *svc.Config) { c.Store, c.Sources.Marketplace = h.store, nil })
	wantCode(t, errorOf(bare.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeSourceFailed, "")
}

func history(t *testing.T, h *host, id string) []svc.TemplateVersion {
	t.Helper()
	return collect(t, h.Templates.History(t.Context(), admin, id))
}

// What a patch, an update by force and a rollback replace is in the history, and what writes nothing adds nothing to it.
func TestHistory(t *testing.T) {
	is := is.New(t)
	h, installed := withTemplate(t)
	is.Equal(installed.Version, int64(1))
	is.Equal(len(history(t, h, "x")), 0)
	patched := must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")}))
	is.Equal(patched.Version, int64(2))
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")}))
	h.market.put(acme, "x", content("X", "2"))
	updated := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}))
	again, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}) // written again, and the same
	is.NoErr(err)
	is.Equal(again.Template.Version, int64(3))

	versions := history(t, h, "x")
	is.Equal(versions, []svc.TemplateVersion{
		{Number: 2, Content: patched.Content, SourceRevision: installed.Origin.Revision, UpdatedAt: patched.UpdatedAt},
		{Number: 1, Content: installed.Content, SourceRevision: installed.Origin.Revision, UpdatedAt: installed.UpdatedAt},
	})
	h.actions()

	back := must(h.Templates.Rollback(t.Context(), admin, "x", 2))
	is.Equal(back.Content, patched.Content)
	origin := *updated.Template.Origin
	origin.Edited = true
	is.Equal(*back.Origin, origin) // it is an edit
	is.True(back.UpdatedAt.After(updated.Template.UpdatedAt))
	is.Equal(h.actions(), []string{"template.rolled_back template/x by admin", "template.diverged template/x by admin"})
	is.Equal(must(h.Templates.Read(t.Context(), admin, "x")), back)
	is.Equal(history(t, h, "x")[0].Content, updated.Template.Content)
	_, err = h.Templates.Rollback(t.Context(), admin, "x", 3) // and back again
	is.NoErr(err)
	h.actions()
	is.Equal(must(h.Templates.Rollback(t.Context(), admin, "x", 3)).Version, int64(5))
	is.Equal(h.actions(), nil)

	is.True(!must(h.Templates.CheckUpdate(t.Context(), admin, "x")).HasUpdate)
	is.NoErr(h.Templates.Delete(t.Context(), admin, "x"))
	create(t, h, "x", svc.Content{})
	is.Equal(len(history(t, h, "x")), 0)
}

func TestHistoryIsBounded(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	create(t, h, "x", svc.Content{})
	for i := range limits.TemplateVersions + 3 {
		must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr(fmt.Sprint("name ", i))}))
	}
	versions := history(t, h, "x")
	is.Equal(len(versions), limits.TemplateVersions)
	is.Equal(versions[0].Number, int64(limits.TemplateVersions+3))
	wantCode(t, errorOf(h.Templates.Rollback(t.Context(), admin, "x", 3)), svc.CodeNotFound, "")
}

func TestHistoryRefuses(t *testing.T) {
	h, _ := withTemplate(t)
	for number, code := range map[int64]svc.Code{0: svc.CodeInvalid, -1: svc.CodeInvalid, math.MaxInt64: svc.CodeInvalid, 1: svc.CodeNotFound, 99: svc.CodeNotFound} {
		_, err := h.Templates.Rollback(t.Context(), admin, "x", number)
		if svc.ErrorCode(err) != code {
			t.Errorf("version %d: %v", number, err)
		}
	}
	_, rollback := h.Templates.Rollback(t.Context(), user("plain"), "x", 1)
	_, diff := h.Templates.Diff(t.Context(), user("plain"), "x")
	for _, err := range []error{rollback, diff, lastError(h.Templates.History(t.Context(), user("plain"), "x"))} {
		wantCode(t, err, svc.CodeForbidden, "")
	}
	_, rollback = h.Templates.Rollback(t.Context(), admin, "nothing", 1)
	_, diff = h.Templates.Diff(t.Context(), admin, "nothing")
	for _, err := range []error{rollback, diff, lastError(h.Templates.History(t.Context(), admin, "nothing"))} {
		wantCode(t, err, svc.CodeNotFound, "")
	}
	_, rollback = h.Templates.Rollback(t.Context(), admin, "a/b", 1)
	wantCode(t, rollback, svc.CodeInvalid, "template_id")
}
