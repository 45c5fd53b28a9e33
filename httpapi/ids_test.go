package httpapi_test

import (
	"net/url"
	"strings"
	"testing"
)

// badIDs are escaped path segments that are no id, however they are spelled.
var badIDs = []string{
	"a%2Fb", "%2F", "a%5Cb", `a\b`, "%00", "a%00", "a%0Ab", "%7F", "%C2%85", ".", "..", "%2e", "%2E%2e", ".%2e",
	"%ff", "a%c3", "%ed%a0%80", "%c0%af",
	"%E2%80%AE", "a%E2%80%8Fb", "%D8%9C", "%E2%81%A6a%E2%81%A9", "%E2%80%8B", "%EF%BB%BFa", "%C2%AD",
	strings.Repeat("a", 129), strings.Repeat("%C3%BC", 129),
}

// goodIDs are escaped path segments that are ids.
var goodIDs = []string{
	"a", "...", ".a", "a.", "user:alice@example.com", "sa:robot", "a%20b", "a+b", "a%3Fb%23c", "a%25b", "%252F", "a;b=c", "*", "null",
	"%C3%BC", "u%CC%88", "%F0%9F%98%80", strings.Repeat("a", 128), strings.Repeat("%F0%9F%98%80", 128), "me", "api-keys", "install",
}

func TestIDsInPaths(t *testing.T) {
	s := newSite(t)
	admin, plain := s.admin(), s.as("session-of-plain")
	for _, id := range badIDs {
		t.Run(id, func(t *testing.T) {
			for _, by := range []caller{admin.in(t), plain.in(t)} {
				by.get("/admin/templates/" + id).refuses("template_id")
				by.patch("/admin/templates/"+id, `{}`).refuses("template_id")
				by.delete("/admin/templates/" + id).refuses("template_id")
				by.post("/admin/templates/"+id+"/install", `{"source_name": "acme"}`).refuses("template_id")
				by.post("/admin/templates/"+id+"/update", "").refuses("template_id")
				by.get("/admin/templates/" + id + "/check-update").refuses("template_id")
				by.get("/admin/templates/" + id + "/diff").refuses("template_id")
				by.get("/admin/templates/" + id + "/history").refuses("template_id")
				by.post("/admin/templates/"+id+"/rollback", `{"version": 1}`).refuses("template_id")
				by.delete("/admin/template-sources/" + id).refuses("name")
				by.get("/admin/template-sources/" + id + "/templates").refuses("name")
				by.post("/admin/template-sources/"+id+"/rebind", "").refuses("name")
				by.get("/users/" + id + "/api-keys").refuses("user_id")
				by.post("/users/"+id+"/api-keys", "").refuses("user_id")
				by.delete("/users/" + id + "/api-keys/0000000000000000").refuses("user_id")
				by.delete("/users/" + id + "/api-keys").refuses("user_id")
				by.patch("/users/"+id+"/api-keys/0000000000000000", "{}").refuses("user_id")
				by.post("/users/"+id+"/api-keys/0000000000000000/rotate", "").refuses("user_id")
				by.patch("/users/alice/api-keys/"+id, "{}").refuses("key_id")
				by.post("/users/alice/api-keys/"+id+"/rotate", "").refuses("key_id")
				by.patch("/me/api-keys/"+id, "{}").refuses("key_id")
				by.post("/me/api-keys/"+id+"/rotate", "").refuses("key_id")
				by.delete("/users/alice/api-keys/" + id).refuses("key_id")
				by.delete("/users/"+id+"/api-keys/"+id).refuses("user_id", "key_id")
				by.delete("/me/api-keys/" + id).refuses("key_id")
			}
			s.as("").in(t).get("/admin/templates/" + id).is(401)
		})
	}
}

func TestIDsInBodies(t *testing.T) {
	admin := newSite(t).admin()
	for _, id := range badIDs {
		decoded := must(url.PathUnescape(id))
		if !strings.Contains(id, "%ff") && strings.ToValidUTF8(decoded, "") == decoded {
			quoted := string(must(marshal(decoded)))
			admin.post("/admin/templates", `{"id": `+quoted+`, "name": "n", "manifest": {"version": "1"}}`).refuses("/id")
			admin.post("/admin/templates/chat/install", `{"source_name": "acme", "alias_id": `+quoted+`}`).refuses("/alias_id")
			admin.post("/admin/template-sources", `{"url": "https://h/a", "alias": `+quoted+`}`).refuses("/alias")
		}
	}
}

func TestGoodIDs(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	for _, escaped := range goodIDs {
		id := must(url.PathUnescape(escaped))
		quoted := string(must(marshal(id)))
		created := admin.post("/admin/templates", `{"id": `+quoted+`, "name": `+quoted+`, "manifest": {"version": "1"}}`).is(200)
		if created.text("id") != id {
			t.Errorf("%s: created %q", escaped, created.text("id"))
		}
		admin.get("/admin/templates/" + escaped).is(200).json(string(created.body))
		admin.get("/admin/templates/" + escaped + "/check-update").is(200)
		admin.get("/admin/templates/" + escaped + "/history").is(200)
		admin.patch("/admin/templates/"+escaped, `{"tags": ["x"]}`).is(200)
		admin.delete("/admin/templates/" + escaped).is(204)

		admin.post("/admin/template-sources", `{"url": "https://h", "alias": `+quoted+`}`).is(201)
		admin.get("/admin/template-sources/" + escaped + "/templates").is(200)
		admin.post("/admin/template-sources/"+escaped+"/rebind", "").is(200)
		admin.delete("/admin/template-sources/" + escaped).is(204)

		key := admin.post("/users/"+escaped+"/api-keys", "").is(201)
		if have := admin.get("/users/" + escaped + "/api-keys").is(200).texts("id"); len(have) != 1 || have[0] != key.text("id") {
			t.Errorf("%s: keys %v", escaped, have)
		}
		s.as(key.text("api_key")).get("/me/api-keys").is(200)
		admin.delete("/users/" + escaped + "/api-keys/" + key.text("id")).is(204)
	}
}

// Composed and decomposed, upper and lower case, escaped twice: none is the other.
func TestIDsAreComparedByteByByte(t *testing.T) {
	admin := newSite(t).admin()
	for _, pair := range [][2]string{{"%C3%BC", "u%CC%88"}, {"Chat", "chat"}, {"%252E", "%2E%20"}, {"a", "a%20"}} {
		id := string(must(marshal(must(url.PathUnescape(pair[0])))))
		admin.post("/admin/templates", `{"id": `+id+`, "name": "n", "manifest": {"version": "1"}}`).is(200)
		admin.get("/admin/templates/"+pair[1]).fails(404, "not_found")
		admin.get("/admin/templates/" + pair[0]).is(200)
	}
	admin.get("/admin/templates/%63hat").is(404)
	admin.get("/admin/templates/%43hat").is(200)
}
