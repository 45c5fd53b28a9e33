package httpapi_test

import (
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

func (c caller) put(target, body string) answer {
	c.t.Helper()
	return c.send("PUT", target, body)
}

const notes = `{"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall"], "banks": ["notes::*"], "recall_tag_groups": [{"x": 1.50e2,  "y": null}], "retain_tags": null}]}`

// step is a request, with the whole body of its answer.
type step struct {
	request, body string
	status        int
	answer        string // "": none
}

// terraform is what a tool does to rows that do not exist: it creates them, in the order of their references.
var terraform = []step{
	{"POST /users", `{"id": "carol", "email": "c@example.com"}`, 201, `{"id": "carol", "display_name": "carol", "email": "c@example.com", "is_active": true}`},
	{"POST /users", `{"id": "dave", "display_name": "Dave", "email": null, "is_active": false}`, 201, `{"id": "dave", "display_name": "Dave", "email": null, "is_active": false}`},
	{"POST /users/carol/channels", `{"provider": "slack", "sender_id": "T1/U8"}`, 201, `{"provider": "slack", "sender_id": "T1/U8"}`},
	{"POST /groups", `{"id": "ops", "display_name": "Operations"}`, 201, `{"id": "ops", "display_name": "Operations"}`},
	{"POST /groups/ops/members", `{"user_id": "carol"}`, 201, `{"group_id": "ops", "user_id": "carol"}`},
	{"POST /policies", `{"id": "notes", "document": ` + notes + `}`, 201, `{"id": "notes", "display_name": "notes", "document": ` + notes + `, "is_builtin": false}`},
	{"PUT /policy-attachments", `{"policy_id": "notes", "principal_type": "group", "principal_id": "ops"}`, 200, `{"policy_id": "notes", "principal_type": "group", "principal_id": "ops", "priority": 0}`},
	{"POST /service-accounts", `{"id": "nightly", "owner_user_id": "carol", "scoping_policy_id": "notes"}`, 201,
		`{"id": "nightly", "owner_user_id": "carol", "display_name": "nightly", "is_active": true, "scoping_policy_id": "notes"}`},
	{"PUT /banks/team%2Fb/policy", `{"document": {"version": "2026-03-24"}}`, 200, `{"bank_id": "team/b", "document": {"version": "2026-03-24"}}`},
}

// reads are the same rows as they are read back.
var reads = []step{
	{"GET /users/carol", "", 200, `{"id": "carol", "display_name": "carol", "email": "c@example.com", "is_active": true}`},
	{"GET /users/dave", "", 200, `{"id": "dave", "display_name": "Dave", "email": null, "is_active": false}`},
	{"GET /users/carol/channels", "", 200, `[{"provider": "slack", "sender_id": "T1/U8"}]`},
	{"GET /users/dave/channels", "", 200, `[]`},
	{"GET /groups/ops", "", 200, `{"id": "ops", "display_name": "Operations"}`},
	{"GET /groups/ops/members", "", 200, `[{"user_id": "carol"}]`},
	{"GET /groups?user_id=carol", "", 200, `[{"id": "ops", "display_name": "Operations"}]`},
	{"GET /policies/notes", "", 200, `{"id": "notes", "display_name": "notes", "document": ` + notes + `, "is_builtin": false}`},
	{"GET /policy-attachments?policy_id=notes", "", 200, `[{"policy_id": "notes", "principal_type": "group", "principal_id": "ops", "priority": 0}]`},
	{"GET /policy-attachments?principal_type=group&principal_id=ops", "", 200, `[{"policy_id": "notes", "principal_type": "group", "principal_id": "ops", "priority": 0}]`},
	{"GET /policy-attachments?policy_id=notes&principal_type=user&principal_id=ops", "", 200, `[]`},
	{"GET /policy-attachments?policy_id=nothing", "", 200, `[]`},
	{"GET /service-accounts/nightly", "", 200, `{"id": "nightly", "owner_user_id": "carol", "display_name": "nightly", "is_active": true, "scoping_policy_id": "notes"}`},
	{"GET /service-accounts?owner_user_id=carol", "", 200, `[{"id": "nightly", "owner_user_id": "carol", "display_name": "nightly", "is_active": true, "scoping_policy_id": "notes"}]`},
	{"GET /service-accounts/nightly/keys", "", 200, `[]`},
	{"GET /banks/team%2Fb/policy", "", 200, `{"bank_id": "team/b", "document": {"version": "2026-03-24"}}`},
}

// same are changes to what is so already.
var same = []step{
	{"PUT /users/carol", `{"display_name": "carol", "email": "c@example.com", "is_active": true}`, 200, reads[0].answer},
	{"PUT /groups/ops", `{"display_name": "Operations"}`, 200, reads[4].answer},
	{"POST /groups/ops/members", `{"user_id": "carol"}`, 201, `{"group_id": "ops", "user_id": "carol"}`},
	{"PUT /policies/notes", `{"document": ` + notes + `}`, 200, reads[7].answer},
	{"PUT /policy-attachments", `{"policy_id": "notes", "principal_type": "group", "principal_id": "ops", "priority": 0}`, 200, terraform[6].answer},
	{"PUT /service-accounts/nightly", `{"display_name": "nightly", "scoping_policy_id": "notes", "is_active": true}`, 200, terraform[7].answer},
	{"PUT /banks/team%2Fb/policy", `{"document": {"version": "2026-03-24"}}`, 200, terraform[8].answer},
}

// updates change each row.
var updates = []step{
	{"PUT /users/carol", `{"email": null}`, 200, `{"id": "carol", "display_name": "carol", "email": null, "is_active": true}`},
	{"PUT /users/dave", `{"is_active": true, "email": ""}`, 200, `{"id": "dave", "display_name": "Dave", "email": "", "is_active": true}`},
	{"PUT /groups/ops", `{"display_name": "Ops"}`, 200, `{"id": "ops", "display_name": "Ops"}`},
	{"PUT /policies/notes", `{"display_name": "Notes"}`, 200, `{"id": "notes", "display_name": "Notes", "document": ` + notes + `, "is_builtin": false}`},
	{"PUT /policies/notes", `{"document": ` + emptyDocument + `}`, 200, `{"id": "notes", "display_name": "Notes", "document": ` + emptyDocument + `, "is_builtin": false}`},
	{"PUT /policy-attachments", `{"policy_id": "notes", "principal_type": "group", "principal_id": "ops", "priority": -2147483648}`, 200,
		`{"policy_id": "notes", "principal_type": "group", "principal_id": "ops", "priority": -2147483648}`},
	{"PUT /service-accounts/nightly", `{"scoping_policy_id": "spare", "is_active": false}`, 200,
		`{"id": "nightly", "owner_user_id": "carol", "display_name": "nightly", "is_active": false, "scoping_policy_id": "spare"}`},
	{"PUT /service-accounts/nightly", `{"scoping_policy_id": null}`, 200,
		`{"id": "nightly", "owner_user_id": "carol", "display_name": "nightly", "is_active": false, "scoping_policy_id": null}`},
	{"PUT /banks/team%2Fb/policy", `{"document": {"version": "2026-03-24", "default_strategy": "brief"}}`, 200,
		`{"bank_id": "team/b", "document": {"version": "2026-03-24", "default_strategy": "brief"}}`},
}

// deletes remove the rows, in the reverse order.
var deletes = []step{
	{"DELETE /banks/team%2Fb/policy", "", 204, ""},
	{"DELETE /service-accounts/nightly", "", 204, ""},
	{"DELETE /policies/notes", "", 409, `{"type": "about:blank", "title": "Conflict", "status": 409, "code": "policy_in_use",
	  "detail": "DETAIL"}`},
	{"DELETE /policy-attachments/notes/group/ops", "", 204, ""},
	{"DELETE /policy-attachments/notes/group/ops", "", 404, ""},
	{"DELETE /policies/notes", "", 204, ""},
	{"GET /policy-attachments?policy_id=notes", "", 200, `[]`},
	{"DELETE /groups/ops/members/carol", "", 204, ""},
	{"DELETE /groups/ops/members/carol", "", 404, ""},
	{"DELETE /groups/ops", "", 204, ""},
	{"DELETE /users/carol/channels/slack/T1%2FU8", "", 204, ""},
	{"DELETE /users/carol/channels/slack/T1%2FU8", "", 404, ""},
	{"DELETE /users/dave", "", 204, ""},
	{"DELETE /users/carol", "", 204, ""},
	{"GET /users/carol", "", 404, ""},
	{"DELETE /users/carol", "", 404, ""},
}

func (c caller) steps(all []step) {
	c.t.Helper()
	for _, s := range all {
		method, target, _ := strings.Cut(s.request, " ")
		a := c.send(method, target, s.body).is(s.status)
		if s.answer != "" && !strings.Contains(s.answer, "DETAIL") {
			a.json(s.answer)
		}
	}
}

// events counts what was told so far.
func (s *site) events() int { return strings.Count(s.said.String(), "Action:access.") }

// A tool creates rows, reads them, plans and applies nothing, changes them, and deletes them in the reverse order.
func TestTerraform(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	before := s.state()
	told := s.events()
	admin.steps(terraform)
	if s.events() != told+len(terraform) {
		t.Errorf("%d events, want %d", s.events()-told, len(terraform))
	}
	made := s.state()
	told = s.events()
	admin.steps(reads)
	admin.steps(same)
	admin.steps(reads)
	if s.state() != made || s.events() != told {
		t.Errorf("a plan without changes: %d events\n%s\n%s", s.events()-told, made, s.state())
	}
	admin.steps(updates)
	if s.events() != told+len(updates) {
		t.Errorf("%d events, want %d", s.events()-told, len(updates))
	}
	admin.steps(deletes)
	if s.state() != before {
		t.Errorf("left:\n%s\nwas:\n%s", s.state(), before)
	}
}

// All that a user has goes with it, keys included.
func TestDeletedUser(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	key, bot := s.key("bob"), s.accountKey("bot")
	admin.delete("/users/bob").is(204)
	s.as(key).get("/me").is(401)
	s.as(bot).get("/me/resolve?bank=b").is(401)
	admin.get("/service-accounts/bot").is(404)
	admin.get("/groups/crew/members").is(200).json(`[]`)
	admin.get("/policy-attachments?policy_id=held").is(200).json(`[]`)
	admin.post("/users", `{"id": "bob"}`).is(201)
	admin.get("/users/bob/channels").is(200).json(`[]`)
	admin.get("/users/bob/api-keys").is(200).json(`[]`)
}

// Each row has a tag that follows from its body. Changes take If-Match, reads If-None-Match.
func TestTagsOfRows(t *testing.T) {
	for target, change := range map[string]string{
		"/users/bob": `{"display_name": "X"}`, "/groups/crew": `{"display_name": "X"}`, "/policies/loose": `{"display_name": "X"}`,
		"/service-accounts/bot": `{"display_name": "X"}`, "/banks/team%2Fa/policy": `{"document": {"version": "2026-03-24", "default_strategy": "brief"}}`,
		"/me/service-accounts/of-plain": `{"display_name": "X"}`,
	} {
		s := withRows(t)
		admin := s.as("session-of-plain+iam:*")
		first := admin.get(target).is(200)
		tag := first.header.Get("ETag")
		if first.header.Get("Cache-Control") != "private, no-cache" || tag == "" {
			t.Errorf("%s: %v", target, first.header)
		}
		for value, status := range map[string]int{tag: 304, "W/" + tag: 304, "*": 304, `"x"`: 200, "x": 400} {
			if a := admin.with("If-None-Match", value, "GET", target, "").is(status); status != 400 && a.header.Get("ETag") != tag {
				t.Errorf("%s: %v", target, a.header)
			}
		}
		for _, method := range []string{"PUT", "DELETE"} {
			body := map[string]string{"PUT": change}[method]
			for _, old := range []string{`"x"`, "W/" + tag} {
				admin.with("If-Match", old, method, target, body).fails(412, "precondition_failed")
			}
			admin.with("If-Match", "x", method, target, body).refuses("If-Match")
			s.as("session-of-plain").with("If-Match", `"x"`, method, target, body).is(403)
		}
		changed := admin.with("If-Match", tag, "PUT", target, change).is(200)
		next := changed.header.Get("ETag")
		if next == tag || next == "" || changed.header.Get("Cache-Control") != "no-store" || admin.get(target).header.Get("ETag") != next {
			t.Errorf("%s: %q then %q", target, tag, next)
		}
		admin.with("If-Match", tag, "DELETE", target, "").is(412)
		admin.with("If-Match", next, "DELETE", target, "").is(204)
		admin.with("If-Match", next, "DELETE", target, "").is(404)
	}
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	const none = "/banks/new/policy"
	admin.with("If-Match", "*", "PUT", none, `{"document": {"version": "2026-03-24"}}`).is(412)
	made := admin.put(none, `{"document": {"version": "2026-03-24"}}`).is(200)
	if made.header.Get("ETag") == "" || made.header.Get("ETag") != admin.get(none).header.Get("ETag") {
		t.Errorf("%v", made.header)
	}
	if created := admin.post("/users", `{"id": "x"}`).is(201); created.header.Get("ETag") != admin.get("/users/x").header.Get("ETag") {
		t.Errorf("%v", created.header)
	}
}

func TestConflicts(t *testing.T) {
	s := withRows(t)
	admin := s.as("session-of-plain+iam:*")
	before := s.state()
	for _, c := range []struct{ request, body, code string }{
		{"POST /users", `{"id": "bob"}`, "already_exists"},
		{"POST /groups", `{"id": "crew"}`, "already_exists"},
		{"POST /policies", `{"id": "spare", "document": ` + emptyDocument + `}`, "already_exists"},
		{"POST /policies", `{"id": "iam:admin", "document": ` + emptyDocument + `}`, "already_exists"},
		{"POST /service-accounts", `{"id": "bot", "owner_user_id": "bob"}`, "already_exists"},
		{"POST /me/service-accounts", `{"id": "bot"}`, "already_exists"},
		{"POST /users/alice/channels", `{"provider": "slack", "sender_id": "T1/U7"}`, "already_exists"},
		{"POST /users/bob/channels", `{"provider": "slack", "sender_id": "T1/U7"}`, "already_exists"},
		{"PUT /policies/iam:admin", `{"display_name": "X"}`, "policy_builtin"},
		{"DELETE /policies/bank:readonly", "", "policy_builtin"},
		{"DELETE /policies/spare", "", "policy_in_use"},
		{"DELETE /policies/held", "", "policy_in_use"},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		admin.send(method, target, c.body).fails(409, c.code)
	}
	if s.state() != before {
		t.Error("a conflict changed something")
	}
	admin.get("/policies/bank:readonly").is(200).json(`{"id": "bank:readonly", "display_name": "Bank Read-Only", "is_builtin": true, "document":
	  {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["bank:recall", "bank:reflect"], "banks": ["*"]}]}}`)
}

// The last active user with every iam: action stays.
func TestLastAdministrator(t *testing.T) {
	s := withRows(t)
	s.apply(`{"service_accounts": [{"id": "haunted", "owner_user_id": "alice"}]}`)
	admin := s.admin() // the only one that is active
	for _, c := range []struct{ request, body string }{
		{"PUT /users/admin", `{"is_active": false}`},
		{"DELETE /users/admin", ""},
		{"PUT /policies/all", `{"document": ` + emptyDocument + `}`},
		{"DELETE /policy-attachments/all/user/admin", ""},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		admin.send(method, target, c.body).fails(409, "last_administrator")
	}
	admin.put("/policy-attachments", `{"policy_id": "iam:admin", "principal_type": "user", "principal_id": "plain"}`).is(200)
	admin.put("/users/admin", `{"is_active": false}`).is(200)
	admin.get("/me").is(401)
	s.as("session-of-plain").get("/users").is(200)
}

func TestMe(t *testing.T) {
	s := withRows(t)
	s.as("session-of-bob").get("/me").is(200).json(`{"id": "bob", "display_name": "Bob", "email": "bob@example.com", "is_active": true,
	  "channels": [{"provider": "slack", "sender_id": "T1/U7"}]}`)
	none := s.as("session-of-nobody@example.com")
	none.get("/me").is(200).json(`{"id": "nobody@example.com", "display_name": "nobody@example.com", "email": null, "is_active": true, "channels": []}`)
	none = s.as("session-of-nobody@example.com" + allActions(""))
	none.get("/me/service-accounts").is(200).json(`[]`)
	none.post("/me/service-accounts", `{"id": "x"}`).fails(403, "forbidden")
	s.as("session-of-robot+sa").get("/me").fails(403, "forbidden")
}

// What belongs to another is as if it were not there.
func TestAccountsOfOthers(t *testing.T) {
	s := withRows(t)
	plain := s.as("session-of-plain" + allActions(manage))
	absent := string(plain.get("/me/service-accounts/none").is(404).body)
	for _, request := range []string{
		"GET /me/service-accounts/bot", `PUT /me/service-accounts/bot {"display_name": "x"}`, "DELETE /me/service-accounts/bot",
		"GET /me/service-accounts/bot/keys", "POST /me/service-accounts/bot/keys {}", "DELETE /me/service-accounts/bot/keys",
		"GET /service-accounts/none", `PUT /me/service-accounts/none {"display_name": "x"}`,
	} {
		parts := append(strings.SplitN(request, " ", 3), "")
		by := plain
		if strings.HasPrefix(parts[1], "/service-accounts") {
			by = s.as("session-of-plain+" + manage)
		}
		if a := by.send(parts[0], parts[1], parts[2]).is(404); !strings.Contains(request, "keys") && string(a.body) != absent {
			t.Errorf("%s: %s, want %s", request, a.body, absent)
		}
	}
	plain.get("/me/service-accounts").is(200).json(`[{"id": "of-plain", "owner_user_id": "plain", "display_name": "of-plain", "is_active": true, "scoping_policy_id": null}]`)
	s.as("session-of-of-plain+sa+" + mineRead).get("/me/service-accounts/of-plain").is(200)
}

// The keys of a service account are those of a user in all.
func TestKeysOfAccounts(t *testing.T) {
	for _, list := range []string{"/service-accounts/bot/keys", "/me/service-accounts/of-plain/keys"} {
		s := withRows(t)
		admin := s.as("session-of-plain+iam:*")
		issued := admin.post(list+"?view=full", `{"description": "d", "expires_at": "2030-01-01T00:00:00Z", "scoping_policy_id": "spare"}`).is(201).value()
		id, key := issued["id"].(string), issued["api_key"].(string)
		s.as(key).get("/me/resolve?bank=b").is(200)
		delete(issued, "api_key")
		issued["last_used_at"] = parse(t, admin.get(list+"?view=full").is(200).body).([]any)[0].(map[string]any)["last_used_at"]
		admin.get(list + "?view=full").is(200).json(string(must(marshal([]any{issued}))))
		admin.get(list).is(200).json(`[{"id": "` + id + `", "api_key_prefix": "svcs_` + id + `", "description": "d"}]`)
		admin.patch(list+"/"+id, `{"disabled": true, "description": null}`).is(200)
		s.as(key).get("/me/resolve?bank=b").is(401)
		next := admin.post(list+"/"+id+"/rotate", "").is(201).text("id")
		admin.delete(list + "/" + id).is(404)
		admin.delete(list + "/" + next).is(204)
		admin.post(list, "").is(201)
		admin.delete(list).is(204)
		admin.get(list).is(200).json(`[]`)
	}
}

func TestBanks(t *testing.T) {
	s := withRows(t)
	s.apply(`{"policies": [{"id": "makes", "document": {"version": "2026-03-24", "statements": [
	    {"effect": "allow", "actions": ["bank:create"], "banks": ["team::*", "there", "taken"]}, {"effect": "allow", "actions": ["template:*"], "banks": ["*"]}]}}],
	  "attachments": [{"policy_id": "makes", "principal_type": "user", "principal_id": "plain"}]}`)
	plain := s.as(s.key("plain"))
	const manifest = `{"version":"1","n":1.50,"x":null}`
	must(s.service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "t", Content: svc.Content{Name: "T", Manifest: []byte(manifest)}}))
	plain.post("/me/templates", `{"id": "t", "name": "T", "manifest": {"version": "own"}}`).is(200)
	plain.post("/banks", `{"bank_id": "team::x", "template": "server/t"}`).is(200).json(`{"bank_id": "team::x", "template": "server/t", "bank_created": true,
	  "import_result": {"bank_id": "team::x", "name": "team::x", "by": "plain", "manifest": ` + manifest + `}}`)
	plain.post("/banks", `{"bank_id": "team::x", "template": "personal/t", "name": "X"}`).is(200).json(`{"bank_id": "team::x", "template": "personal/t", "bank_created": true,
	  "import_result": {"bank_id": "team::x", "name": "X", "by": "plain", "manifest": {"version": "own"}}}`)
	plain.post("/banks", `{"bank_id": "there", "template": "server/t"}`).is(200).json(`{"bank_id": "there", "template": "server/t", "bank_created": false, "import_result": null}`)
	plain.post("/banks", `{"bank_id": "taken", "template": "server/t"}`).fails(409, "already_exists")
	plain.post("/banks", `{"bank_id": "team::x", "template": "server/none"}`).fails(404, "not_found")
	plain.post("/banks", `{"bank_id": "other", "template": "server/t"}`).fails(403, "forbidden")
	s.as("session-of-alice+bank:create+template:list").post("/banks", `{"bank_id": "team::x", "template": "server/t"}`).fails(403, "forbidden")
	plain.post("/banks", `{"bank_id": "", "template": "server/t"}`).refuses("/bank_id")
	plain.post("/banks", `{"bank_id": "team::x", "template": "t"}`).refuses("/template")
	plain.post("/banks", `{"bank_id": "team::x", "template": "host/t"}`).refuses("/template")
	plain.post("/banks", `{"bank_id": "team::x", "template": "server/a/b"}`).refuses("/template")
	plain.post("/banks", `{"bank_id": "team::x", "template": "server/t", "name": ""}`).refuses("/name")
	plain.post("/banks", `{"template": "server/t"}`).refuses("/bank_id")

	none := newSite(t)
	none.admin().post("/banks", `{"bank_id": "team::x", "template": "server/t"}`).fails(404, "not_found")
}
