package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// offers is what the source "acme" is said to offer, as "id installed_as behind", each, and whether that is stale.
func (c caller) offers() string {
	c.t.Helper()
	v := c.get("/admin/template-sources/acme/templates").is(200).value()
	var all []string
	for _, t := range v["templates"].([]any) {
		t := t.(map[string]any)
		all = append(all, fmt.Sprint(t["id"], " ", t["installed_as"], " ", t["behind"]))
	}
	for _, b := range v["bad"].([]any) {
		b := b.(map[string]any)
		all = append(all, fmt.Sprint(b["index"], " ", b["id"], ": ", b["reason"]))
	}
	return strings.Join(all, "; ") + fmt.Sprint("; ", v["stale"])
}

func TestBrowse(t *testing.T) {
	const file = `{"id": "file", "name": "File", "manifest_file": "f.json"}`
	u, other := newUpstream(t, map[string]string{"f.json": `{"version": "1"}`}), newUpstream(t, map[string]string{})
	u.offer(first, file, `{"id": "half"}`, `{"id": "a/b", "name": "n", "manifest": {"version": "1"}}`, `null`)
	other.offer(`{"id": "other", "name": "Other", "manifest": {"version": "1"}}`)
	admin := newSite(t, trusting(u, other)).admin()
	want := func(what, list string) {
		t.Helper()
		if have := admin.offers(); have != list {
			t.Errorf("%s: offers %s\nwant %s", what, have, list)
		}
	}
	const bad = `; 2 half: name is missing; 3 a/b: id must hold no slash or backslash; 4 <nil>: it must be an object; false`
	admin.register(u)
	want("at first", "chat [] <nil>; file [] <nil>"+bad)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	admin.post("/admin/templates/file/install", `{"source_name": "acme", "alias_id": "mine"}`).is(200)
	want("installed", "chat [chat] false; file [mine] false"+bad)

	// A copy that is young is enough to look at, and an update asks the source.
	u.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	want("while the source is away", "chat [chat] false; file [mine] false"+bad)
	admin.get("/admin/templates/chat/check-update").is(502)
	u.answer(nil)
	u.offer(second, file)
	want("not asked yet", "chat [chat] false; file [mine] false"+bad)
	if admin.get("/admin/templates/chat/check-update").is(200).value()["has_update"] != true {
		t.Error("a check does not see what is new")
	}
	want("asked", "chat [chat] true; file [mine] false; false")

	// The name stays, and what it leads to is another source.
	admin.delete("/admin/template-sources/acme").is(204)
	admin.get("/admin/template-sources/acme/templates").is(404)
	admin.register(other)
	want("another address", "other [] <nil>; false")
	admin.delete("/admin/template-sources/acme").is(204)
	u.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	admin.register(u)
	admin.get("/admin/template-sources/acme/templates").is(502)
	u.answer(nil)
	want("registered anew", "chat [chat] true; file [mine] <nil>; false")
}
