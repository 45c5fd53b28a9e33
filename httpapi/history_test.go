package httpapi_test

import (
	"fmt"
	"testing"
)

func TestHistoryAndRollback(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	was := admin.get("/admin/templates/chat").is(200)
	admin.get("/admin/templates/chat/history").is(200).json(`{"versions": []}`)
	at := s.clock.tick()
	admin.patch("/admin/templates/chat", `{"name": "Mine", "description": null, "tags": []}`).is(200)
	version := func(number int, name, updated string) string {
		return fmt.Sprintf(`{"version": %d, "name": %q, "description": null, "category": null, "integrations": [], "tags": [],
			"source_revision": %q, "updated_at": %q, "manifest": {"version": "1", "n": 1.0}}`, number, name, was.text("source_revision"), updated)
	}
	admin.get("/admin/templates/chat/history").is(200).json(`{"versions": [` + version(1, "Chat", beginText) + `]}`)
	s.clock.tick()
	back := admin.post("/admin/templates/chat/rollback", `{"version": 1}`).is(200)
	if back.text("name") != "Chat" || back.text("updated_at") == beginText || back.text("installed_at") != beginText {
		t.Errorf("rolled back to %s", back.body)
	}
	admin.get("/admin/templates/chat").is(200).json(string(back.body))
	admin.get("/admin/templates/chat/history").is(200).json(`{"versions": [` + version(2, "Mine", at) + `, ` + version(1, "Chat", beginText) + `]}`)

	for _, body := range []string{``, `{}`, `{"version": 0}`, `{"version": -1}`, `{"version": 9223372036854775807}`} {
		admin.post("/admin/templates/chat/rollback", body).refuses("/version")
		s.as("session-of-plain").post("/admin/templates/chat/rollback", body).refuses("/version")
	}
	for _, body := range []string{`{"version": 1.5}`, `{"version": "1"}`, `{"version": 1e400}`, `{"version": 1, "force": true}`, `[]`} {
		admin.post("/admin/templates/chat/rollback", body).fails(400, "invalid_request")
	}
	admin.post("/admin/templates/chat/rollback", `{"version": 3}`).fails(404, "not_found")
	admin.post("/admin/templates/nothing/rollback", `{"version": 1}`).fails(404, "not_found")
	admin.get("/admin/templates/nothing/history").fails(404, "not_found")
}

func TestDiffOfTemplate(t *testing.T) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	revisions := fmt.Sprintf(`"current_revision": %q, "latest_revision": `, revision("Chat", `{"version": "1", "n": 1.0}`))
	admin.get("/admin/templates/chat/diff").is(200).json(`{` + revisions + fmt.Sprintf("%q", revision("Chat", `{"version": "1", "n": 1.0}`)) + `, "changes": []}`)
	admin.patch("/admin/templates/chat", `{"description": "here", "manifest": {"version": "mine", "n": 1.0, "x": null}}`).is(200)
	const theirs = `{"version": "2"}`
	s.market.offer("chat", "Chat", theirs)
	admin.get("/admin/templates/chat/diff").is(200).json(`{` + revisions + fmt.Sprintf("%q", revision("Chat", theirs)) + `, "changes": [
		{"path": "/description", "conflict": false, "base": null, "ours": "here", "theirs": null},
		{"path": "/manifest/n", "conflict": false, "base": 1, "ours": 1},
		{"path": "/manifest/version", "conflict": true, "base": "1", "ours": "mine", "theirs": "2"},
		{"path": "/manifest/x", "conflict": false, "ours": null}]}`)
	admin.post("/admin/templates", `{"id": "made", "name": "n", "manifest": {"version": "1"}}`).is(200)
	admin.get("/admin/templates/made/diff").refuses("template_id")
	admin.get("/admin/templates/nothing/diff").fails(404, "not_found")
	s.market.withdraw("chat")
	admin.get("/admin/templates/chat/diff").fails(404, "not_found")
	admin.delete("/admin/template-sources/acme").is(204)
	admin.get("/admin/templates/chat/diff").fails(404, "not_found")
}
