package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// halves are the routes that both halves have, by their path behind /admin and /me: of each the action that openapi.json names.
func halves(t *testing.T) map[httpapi.Route][2]string {
	t.Helper()
	var d struct {
		Paths map[string]map[string]struct {
			Actions []string `json:"x-actions"`
		}
	}
	if err := json.Unmarshal(httpapi.OpenAPI("/"), &d); err != nil {
		t.Fatal(err)
	}
	both := map[httpapi.Route][2]string{}
	for _, route := range httpapi.Routes() {
		path, is := strings.CutPrefix(route.Path, "/me")
		if other, shared := d.Paths["/admin"+path]; is && shared && path != "/api-keys" { // of all holders, and of the caller
			method := strings.ToLower(route.Method)
			both[httpapi.Route{Method: route.Method, Path: path}] =
				[2]string{other[method].Actions[0], d.Paths[route.Path][method].Actions[0]}
		}
	}
	if len(both) != 18 {
		t.Fatalf("%d routes are in both halves", len(both))
	}
	return both
}

// bodies are bodies that the routes take.
var bodies = map[string]string{
	"POST /template-sources":                 `{"url": "https://h/acme"}`,
	"POST /templates":                        `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`,
	"PATCH /templates/{template_id}":         `{"name": "Chat"}`,
	"POST /templates/{template_id}/install":  `{"source_name": "acme"}`,
	"POST /templates/{template_id}/rollback": `{"version": 1}`,
}

var atChat = strings.NewReplacer("{name}", "acme", "{template_id}", "chat")

// Each route of a half needs the action that openapi.json names, and no other action of templates does.
func TestActionsOfBothHalves(t *testing.T) {
	s := newSite(t)
	actions := []string{"template:admin", "template:list", "template:create", "template:manage", "template:install", "template:source"}
	for route, needed := range halves(t) {
		for half, prefix := range []string{"/admin", "/me"} {
			send := func(bearer string) answer {
				return s.as(bearer).send(route.Method, prefix+atChat.Replace(route.Path), bodies[route.Method+" "+route.Path])
			}
			for _, action := range actions {
				a := send("session-of-plain+" + action)
				if refused := a.status == 403; refused == (action == needed[half]) {
					t.Errorf("%s with %s: %d %s", a.request, action, a.status, a.body)
				}
			}
			for bearer, may := range map[string]bool{
				s.key("admin"): true, s.accountKey("robot"): true, s.accountKey("narrow"): false, "session-of-plain": false, "session-of-unseen+template:*": true,
				"session-of-barred+template:*": false, "session-of-nobody+sa+template:*": prefix == "/admin",
			} {
				if a := send(bearer); (a.status != 403) != may {
					t.Errorf("%s by %s: %d %s", a.request, clip(bearer[:5]), a.status, a.body)
				}
			}
			send("").fails(401, "unauthenticated")
			send("session-of-ghost+template:*").fails(401, "unauthenticated")
		}
	}
}

// Ids that are none are refused before rights, by each route of one's own.
func TestIDsInPathsOfOnesOwn(t *testing.T) {
	s := newSite(t)
	admin, plain := s.admin(), s.as("session-of-plain")
	for route := range halves(t) {
		at := strings.Index(route.Path, "{")
		if at < 0 {
			continue
		}
		parameter, _, _ := strings.Cut(route.Path[at+1:], "}")
		for _, id := range badIDs {
			path := "/me" + strings.Replace(route.Path, "{"+parameter+"}", id, 1)
			for _, by := range []caller{admin, plain} {
				by.send(route.Method, path, bodies[route.Method+" "+route.Path]).refuses(parameter)
			}
		}
	}
	for _, escaped := range goodIDs {
		id := must(url.PathUnescape(escaped))
		quoted := string(must(marshal(id)))
		created := admin.post("/me/templates", `{"id": `+quoted+`, "name": `+quoted+`, "manifest": {"version": "1"}}`).is(200)
		admin.get("/me/templates/" + escaped).is(200).json(string(created.body))
		admin.get("/admin/templates/"+escaped).fails(404, "not_found")
		admin.delete("/me/templates/" + escaped).is(204)
		admin.post("/me/template-sources", `{"url": "https://h", "alias": `+quoted+`}`).is(201)
		admin.delete("/admin/template-sources/"+escaped).fails(404, "not_found")
		admin.get("/me/template-sources/" + escaped + "/templates").is(200)
		admin.delete("/me/template-sources/" + escaped).is(204)
	}
}

// Bodies are as strict as those of the server's half, and what they say of others is refused.
func TestBodiesOfOnesOwn(t *testing.T) {
	admin := newSite(t).admin()
	admin.post("/me/templates", `{"id": "a", "name": "a", "manifest": {"version": "1"}, "owner": "alice"}`).refuses("/owner")
	admin.post("/me/templates", `{"id": "a", "name": "a", "manifest": {"version": "1"}, "scope": "server"}`).refuses("/scope")
	admin.post("/me/templates", `{"id": "a", "name": "a", "manifest": {}}`).refuses("/manifest/version")
	admin.post("/me/template-sources", `{"url": "http://h/acme"}`).refuses("/url")
	admin.post("/me/template-sources", `{"url": "https://h/acme", "owner": "alice"}`).refuses("/owner")
	admin.post("/me/templates/x/install", `{"source_name": "acme", "source_scope": "alice"}`).refuses("/source_scope")
	admin.post("/me/templates/x/install", `{"source_name": "acme", "source_owner": "alice"}`).refuses("/source_owner")
	admin.post("/me/templates/x/install", ``).fails(400, "invalid_request")
	admin.get("/me/templates?owner=alice").refuses("owner")
}

// A template of one's own has its owner, and all that one of the server has: conditions, pages, repeated requests.
func TestTemplatesOfOnesOwn(t *testing.T) {
	s, admin := stocked(t)
	source := `{"name": "mine", "url": "https://h/mine", "scope": "personal", "owner": "admin", "has_auth": false, "description": null,
		"created_at": "` + beginText + `", "updated_at": "` + beginText + `"}`
	admin.post("/me/template-sources", `{"url": "https://h/mine"}`).is(201).json(source)
	admin.get("/me/template-sources").is(200).json(`[` + source + `]`)
	robot := s.as(s.accountKey("robot"))
	robot.get("/me/template-sources").is(200).json(`[` + source + `]`)
	want := strings.NewReplacer(`"scope": "server", "owner": null`, `"scope": "personal", "owner": "admin"`, `"acme"`, `"mine"`,
		`"source_scope": "server", "source_owner": null`, `"source_scope": "personal", "source_owner": "admin"`).
		Replace(installed("chat", "Chat", `{"version": "1", "n": 1.0}`, beginText, beginText))
	once := func(r *http.Request) { r.Header.Set("Idempotency-Key", "once") }
	body := `{"source_name": "mine", "source_scope": "personal"}`
	for range 2 {
		robot.sendWith("POST", "/me/templates/chat/install", body, once).is(200).json(want)
	}
	robot.sendWith("POST", "/admin/templates/chat/install", body, once).fails(422, "idempotency_key_reused")
	robot.post("/me/templates/chat/install", body).fails(409, "already_exists")
	robot.post("/me/templates/chat/install", `{"source_name": "mine"}`).fails(404, "not_found")

	etag := admin.get("/me/templates/chat").is(200).header.Get("ETag")
	admin.with("If-None-Match", etag, "GET", "/me/templates/chat", "").is(304)
	admin.with("If-Match", `"another"`, "PATCH", "/me/templates/chat", `{"tags": ["x"]}`).fails(412, "precondition_failed")
	admin.with("If-Match", etag, "PATCH", "/me/templates/chat", `{"tags": ["x"]}`).is(200)
	admin.with("If-Match", etag, "DELETE", "/me/templates/chat", "").fails(412, "precondition_failed")
	for i := range 5 {
		admin.post("/me/templates", fmt.Sprintf(`{"id": "t%d", "name": "t%d", "manifest": {"version": "1"}}`, i, i)).is(200)
	}
	if pages := admin.pages("/me/templates?limit=4"); fmt.Sprint(pages) != "[[chat t0 t1 t2] [t3 t4]]" {
		t.Errorf("pages %v", pages)
	}
	admin.get("/admin/templates").is(200).json(`{"templates": []}`)
	stranger := s.as("session-of-stranger+template:*")
	stranger.get("/me/templates").is(200).json(`{"templates": []}`)
	stranger.get("/me/template-sources").is(200).json(`[]`)
	stranger.get("/me/templates/chat").is(404).json(string(stranger.get("/me/templates/none").is(404).body))
	if offered := admin.get("/me/source-templates").is(200); !strings.Contains(string(offered.body), `"installed_as":["chat"]`) {
		t.Errorf("%s", offered.body)
	}
	admin.delete("/me/template-sources/mine").is(204)
	admin.get("/me/templates/chat").is(200)
	admin.get("/me/templates/chat/check-update").fails(404, "not_found")
}

// One more than is allowed is 409.
func TestLimitsOfOnesOwn(t *testing.T) {
	s, admin := stocked(t)
	for i := range svc.MaxPersonalSources {
		admin.post("/me/template-sources", fmt.Sprintf(`{"url": "https://h/s%d"}`, i)).is(201)
	}
	admin.post("/me/template-sources", `{"url": "https://h/more"}`).fails(409, "limit_reached")
	key := svc.TemplateKey{Scope: svc.ScopePersonal, Owner: "admin"}
	for i := range svc.MaxPersonalTemplates {
		key.ID = fmt.Sprint("t", i)
		if err := s.store.CreateTemplate(t.Context(), svc.Template{TemplateKey: key, Content: svc.Content{Name: "t", Manifest: []byte(`{"version":"1"}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	admin.post("/me/templates", bodies["POST /templates"]).fails(409, "limit_reached")
	admin.post("/me/templates/chat/install", `{"source_name": "acme"}`).fails(409, "limit_reached")
	admin.post("/admin/templates", bodies["POST /templates"]).is(200)
	admin.delete("/me/templates/t7").is(204)
	admin.post("/me/templates", bodies["POST /templates"]).is(200)
	if all := slices.Concat(admin.pages("/me/templates?limit=1000")...); len(all) != svc.MaxPersonalTemplates {
		t.Errorf("%d are listed", len(all))
	}
}
