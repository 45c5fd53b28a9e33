package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/marketplace"
)

const (
	first   = `{"id": "chat", "name": "Chat", "description": "one", "category": "talk", "tags": ["t"], "manifest": {"version": "1", "n": 1.0}}`
	second  = `{"id": "chat", "name": "Chat", "description": "two", "category": "talk", "tags": ["t"], "manifest": {"version": "2", "n": 1.0}}`
	edit    = `{"category": null, "tags": ["t", "mine"]}`
	restore = `{"category": "talk", "tags": ["t"]}`
)

// installed serves a source with the template "chat", installed as "mine".
func installed(t *testing.T) (*upstream, caller) {
	t.Helper()
	return installedWithin(t, marketplace.Limits{})
}

func installedWithin(t *testing.T, limits marketplace.Limits) (*upstream, caller) {
	t.Helper()
	u := newUpstream(t, map[string]string{})
	u.offer(first)
	config := trusting(u)
	config.Limits = limits
	admin := newSite(t, config).admin()
	admin.register(u)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "alias_id": "mine"}`).is(200)
	return u, admin
}

// TestUpdates is the table of updates: what the source did, what was done here, and what an update makes of it.
func TestUpdates(t *testing.T) {
	for _, c := range []struct {
		name        string
		upstream    string   // "": unchanged
		patches     []string // done here
		force       bool
		status      int
		updated     bool
		description string // afterwards
		edited      bool   // afterwards
		fields      string // of a 409
	}{
		{name: "nothing changed, forced", force: true, status: 200, updated: true, description: "one"},
		{name: "nothing changed", status: 200, description: "one"},
		{name: "upstream changed", upstream: second, status: 200, updated: true, description: "two"},
		{name: "upstream changed, forced", upstream: second, force: true, status: 200, updated: true, description: "two"},
		{name: "edited here", patches: []string{edit}, status: 200, description: "one", edited: true},
		{name: "edited here, forced", patches: []string{edit}, force: true, status: 200, updated: true, description: "one"},
		{name: "both", upstream: second, patches: []string{edit}, status: 409, description: "one", edited: true, fields: "[category tags]"},
		{name: "both, forced", upstream: second, patches: []string{edit}, force: true, status: 200, updated: true, description: "two"},
		{name: "edited and restored", upstream: second, patches: []string{edit, restore}, status: 200, updated: true, description: "two"},
		{name: "edited to what upstream has", upstream: second, patches: []string{`{"description": "two", "manifest": {"n": 1, "version": "2"}}`}, status: 200, updated: true, description: "two"},
		{name: "edited to a part of what upstream has", upstream: second, patches: []string{`{"description": "two"}`}, status: 409, description: "two", fields: "[description]"},
		{name: "manifest edited", upstream: second, patches: []string{`{"manifest": {"version": "x"}}`}, status: 409, description: "one", fields: "[manifest]"},
		{name: "everything edited", upstream: second, patches: []string{`{"name": "n", "description": null, "category": "c", "integrations": ["i"], "tags": [], "manifest": {"version": "x"}}`},
			status: 409, fields: "[name description category integrations tags manifest]"},
		{name: "upstream only spelled otherwise", upstream: `{"manifest": {"n": 1, "version": "1"}, "tags": ["t"], "category": "talk", "description": "\u006fne", "name": "Chat", "id": "chat"}`,
			status: 200, description: "one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, admin := installed(t)
			before := admin.get("/admin/templates/mine").is(200)
			for _, patch := range c.patches {
				before = admin.patch("/admin/templates/mine", patch).is(200)
			}
			if c.upstream != "" {
				u.offer(c.upstream)
			}
			check := admin.get("/admin/templates/mine/check-update").is(200)
			isNew := c.upstream == second
			if check.value()["has_update"] != isNew || (check.text("current_revision") == check.text("latest_revision")) == isNew {
				t.Errorf("%s", check.body)
			}
			a := admin.post(fmt.Sprint("/admin/templates/mine/update?force=", c.force), "").is(c.status)
			after := admin.get("/admin/templates/mine").is(200)
			if c.status == 409 {
				if fields := fmt.Sprint(a.value()["fields"]); fields != c.fields || a.text("code") != "edited_locally" {
					t.Errorf("fields %s, want %s: %s", fields, c.fields, a.body)
				}
				after.json(string(before.body))
				return
			}
			v := a.value()
			if v["updated"] != c.updated || len(v) != 4 || a.text("previous_revision") != check.text("current_revision") || a.text("new_revision") != check.text("latest_revision") {
				t.Errorf("updated %v: %s", v["updated"], a.body)
			}
			after.json(string(must(marshal(v["template"]))))
			have, old := after.template(), before.template()
			if have.InstalledAt != old.InstalledAt || (have.UpdatedAt == old.UpdatedAt) == c.updated || *have.SourceRevision != check.text("latest_revision") || have.ID != "mine" {
				t.Errorf("before %s\nafter %s", before.body, after.body)
			}
			if *have.Description != c.description || (have.Category == nil) != c.edited || slices.Contains(have.Tags, "mine") != c.edited {
				t.Errorf("after %s", after.body)
			}
			if !c.edited && admin.post("/admin/templates/mine/update", "").is(200).value()["updated"] != false {
				t.Error("updated twice")
			}
		})
	}
}

// After edits were kept and then overruled, the next comparison is with what is installed now.
func TestUpdatesFollowEachOther(t *testing.T) {
	u, admin := installed(t)
	admin.patch("/admin/templates/mine", edit).is(200)
	u.offer(second)
	admin.post("/admin/templates/mine/update", "").is(409)
	admin.post("/admin/templates/mine/update?force=1", "").is(200)
	admin.patch("/admin/templates/mine", `{"name": "Mine"}`).is(200)
	if kept := admin.post("/admin/templates/mine/update", "").is(200); kept.value()["updated"] != false || !strings.Contains(string(kept.body), `"name":"Mine"`) {
		t.Errorf("%s", kept.body)
	}
	u.offer(first)
	if conflict := admin.post("/admin/templates/mine/update", "").is(409); fmt.Sprint(conflict.value()["fields"]) != "[name]" {
		t.Errorf("%s", conflict.body)
	}
	admin.patch("/admin/templates/mine", `{"name": "Chat"}`).is(200)
	admin.post("/admin/templates/mine/update", "").is(200)
	if have := admin.get("/admin/templates/mine").is(200).template(); *have.Description != "one" || string(have.Manifest) != `{"version":"1","n":1.0}` {
		t.Errorf("%v", have)
	}
}

func TestUpdateOfWhatIsGone(t *testing.T) {
	u, admin := installed(t)
	before := string(admin.get("/admin/templates").is(200).body)
	u.offer()
	check := admin.get("/admin/templates/mine/check-update").is(200)
	check.json(fmt.Sprintf(`{"has_update": false, "current_revision": %q, "latest_revision": null, "source_name": "acme", "source_scope": "server"}`, check.text("current_revision")))
	admin.post("/admin/templates/mine/update", "").is(404)
	admin.post("/admin/templates/mine/update?force=true", "").is(404)
	admin.delete("/admin/template-sources/acme").is(204)
	for _, a := range []answer{admin.get("/admin/templates/mine/check-update"), admin.post("/admin/templates/mine/update", ""), admin.post("/admin/templates/mine/update?force=1", "")} {
		if !strings.Contains(a.is(404).text("detail"), `"acme"`) {
			t.Errorf("%s does not name the source: %s", a.request, a.body)
		}
	}
	admin.get("/admin/templates").is(200).json(before)
	admin.register(u)
	u.offer(second)
	if admin.post("/admin/templates/mine/update", "").is(200).value()["updated"] != true {
		t.Error("registered again, and not updated")
	}
}

func TestHandMadeTemplateHasNoUpdates(t *testing.T) {
	_, admin := installed(t)
	before := string(admin.post("/admin/templates", `{"id": "chat", "name": "n", "manifest": {"version": "1"}}`).is(200).body)
	admin.get("/admin/templates/chat/check-update").is(200).
		json(`{"has_update": false, "current_revision": null, "latest_revision": null, "source_name": null, "source_scope": null}`)
	admin.post("/admin/templates/chat/update", "").is(400)
	admin.post("/admin/templates/chat/update?force=1", "").is(400)
	admin.get("/admin/templates/chat").is(200).json(before)
}
