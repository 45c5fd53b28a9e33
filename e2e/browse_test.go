package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// offers returns the templates that the source "acme" offers, each as "id installed_as behind", and
// whether the list is stale.
func (c caller) offers() string {
	c.t.Helper()
	offered := must(c.Sources.Browse(c.t.Context(), "acme", svc.CatalogFilter{}))
	var all []string
	for _, t := range offered.Templates {
		behind := "nil"
		if t.Behind != nil {
			behind = fmt.Sprint(*t.Behind)
		}
		all = append(all, fmt.Sprint(t.ID, " ", t.InstalledAs, " ", behind))
	}
	for _, b := range offered.Bad {
		all = append(all, fmt.Sprint(b.Index, " ", b.ID, ": ", b.Reason))
	}
	return strings.Join(all, "; ") + fmt.Sprint("; ", offered.Stale)
}

func TestBrowse(t *testing.T) {
	const file = `{"id": "file", "name": "File", "manifest_file": "f.json"}`
	u, other := newUpstream(t, map[string]string{"f.json": `{"version": "1"}`}), newUpstream(t, map[string]string{})
	u.offer(first, file, `{"id": "half"}`, `{"id": "a/b", "name": "n", "manifest": {"version": "1"}}`, `null`)
	other.offer(`{"id": "other", "name": "Other", "manifest": {"version": "1"}}`)
	admin, ctx := newSite(t, trusting(u, other)).admin(), t.Context()
	want := func(what, list string) {
		t.Helper()
		if have := admin.offers(); have != list {
			t.Errorf("%s: offers %s\nwant %s", what, have, list)
		}
	}
	const bad = `; 2 half: name is missing; 3 a/b: id must hold no slash or backslash; 4 : it must be an object; false`
	admin.register(u)
	want("at first", "chat [] nil; file [] nil"+bad)
	fails(t, admin.install("chat"), "")
	must(admin.Templates.Install(ctx, svc.Install{TemplateID: "file", SourceName: "acme", AliasID: new("mine")}))
	want("installed", "chat [chat] false; file [mine] false"+bad)

	// The list may come from a young cached copy; an update asks the source.
	u.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	want("while the source is away", "chat [chat] false; file [mine] false"+bad)
	fails(t, failure(admin.Templates.CheckUpdate(ctx, "chat")), svc.CodeSourceFailed)
	u.answer(nil)
	u.offer(second, file)
	want("not asked yet", "chat [chat] false; file [mine] false"+bad)
	if !must(admin.Templates.CheckUpdate(ctx, "chat")).HasUpdate {
		t.Error("a check does not see what is new")
	}
	want("asked", "chat [chat] true; file [mine] false; false")

	// Another source takes the same name.
	fails(t, admin.Sources.Remove(ctx, "acme"), "")
	fails(t, failure(admin.Sources.Browse(ctx, "acme", svc.CatalogFilter{})), svc.CodeNotFound)
	admin.register(other)
	want("another address", "other [] nil; false")
	fails(t, admin.Sources.Remove(ctx, "acme"), "")
	u.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	admin.register(u)
	fails(t, failure(admin.Sources.Browse(ctx, "acme", svc.CatalogFilter{})), svc.CodeSourceFailed)
	u.answer(nil)
	want("registered anew", "chat [chat] true; file [mine] nil; false")
}
