package svc_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func history(t *testing.T, h *host, id string) []svc.TemplateVersion {
	t.Helper()
	var versions []svc.TemplateVersion
	for version, err := range h.Templates.History(t.Context(), admin, id) {
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, version)
	}
	return versions
}

// What a patch, an update by force and a rollback replace is in the history, and what writes nothing adds nothing to it.
func TestHistory(t *testing.T) {
	is := is.New(t)
	h, installed := withTemplate(t)
	is.Equal(installed.Version, int64(1))
	is.Equal(len(history(t, h, "x")), 0)
	patched, err := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")})
	is.NoErr(err)
	is.Equal(patched.Version, int64(2))
	_, err = h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")})
	is.NoErr(err)
	h.market.put(acme, "x", content("X", "2"))
	updated, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{Force: true})
	is.NoErr(err)
	again, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{Force: true}) // written again, and the same
	is.NoErr(err)
	is.Equal(again.Template.Version, int64(3))

	versions := history(t, h, "x")
	is.Equal(versions, []svc.TemplateVersion{
		{Number: 2, Content: patched.Content, SourceRevision: installed.Origin.Revision, UpdatedAt: patched.UpdatedAt},
		{Number: 1, Content: installed.Content, SourceRevision: installed.Origin.Revision, UpdatedAt: installed.UpdatedAt},
	})
	h.actions()

	back, err := h.Templates.Rollback(t.Context(), admin, "x", 2)
	is.NoErr(err)
	is.Equal(back.Content, patched.Content)
	origin := *updated.Template.Origin
	origin.Edited = true
	is.Equal(*back.Origin, origin) // it is an edit
	is.True(back.UpdatedAt.After(updated.Template.UpdatedAt))
	is.Equal(h.actions(), []string{"template.rolled_back template/x by admin", "template.diverged template/x by admin"})
	read, err := h.Templates.Read(t.Context(), admin, "x")
	is.NoErr(err)
	is.Equal(read, back)
	is.Equal(history(t, h, "x")[0].Content, updated.Template.Content)
	_, err = h.Templates.Rollback(t.Context(), admin, "x", 3) // and back again
	is.NoErr(err)
	h.actions()
	same, err := h.Templates.Rollback(t.Context(), admin, "x", 3)
	is.NoErr(err)
	is.Equal(same.Version, int64(5))
	is.Equal(h.actions(), nil)

	checked, err := h.Templates.CheckUpdate(t.Context(), admin, "x")
	is.NoErr(err)
	is.True(!checked.HasUpdate)
	is.NoErr(h.Templates.Delete(t.Context(), admin, "x"))
	create(t, h, "x", svc.Content{})
	is.Equal(len(history(t, h, "x")), 0)
}

func TestHistoryIsBounded(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	create(t, h, "x", svc.Content{})
	for i := range svc.MaxTemplateVersions + 3 {
		_, err := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr(fmt.Sprint("name ", i))})
		is.NoErr(err)
	}
	versions := history(t, h, "x")
	is.Equal(len(versions), svc.MaxTemplateVersions)
	is.Equal(versions[0].Number, int64(svc.MaxTemplateVersions+3))
	_, err := h.Templates.Rollback(t.Context(), admin, "x", 3)
	wantCode(t, err, svc.CodeNotFound, "")
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
