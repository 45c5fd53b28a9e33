package httpapi_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

// wholesome are good bodies, one an endpoint, on a stocked site with "chat" installed and these keys of alice's.
func wholesome(key string) map[string]string {
	return map[string]string{
		"POST /admin/template-sources":                  `{"url": "https://h/other", "alias": "é", "auth_token": "t", "description": "d"}`,
		"POST /admin/templates":                         `{"id": "b", "name": "ü", "description": null, "category": "c", "integrations": ["i"], "tags": ["t", "t"], "manifest": {"version": "1", "n": -1.50e+2}}`,
		"PATCH /admin/templates/chat":                   `{"name": "x", "description": "d", "category": null, "integrations": [], "tags": ["t"], "manifest": {"version": "2"}}`,
		"POST /admin/templates/chat/install":            `{"source_name": "acme", "source_scope": "server", "alias_id": "mine"}`,
		"POST /admin/templates/chat/update":             `{}`,
		"POST /admin/templates/chat/rollback":           `{"version": 1}`,
		"POST /users/alice/api-keys":                    `{"description": "d", "expires_at": "2030-12-31T23:59:59Z"}`,
		"POST /me/api-keys":                             `{"description": "\ud83d\ude00"}`,
		"PATCH /users/alice/api-keys/" + key:            `{"description": "d", "expires_at": null, "disabled": true}`,
		"POST /users/alice/api-keys/" + key + "/rotate": `{"overlap_seconds": 60}`,
		"POST /debug/simulate":                          `{"bundle": {"users": [{"id": "a"}]}, "query": {"bank": "b", "user_id": "a"}}`,
		"POST /decide":                                  `{"queries": [{"bank": "b", "action": "bank:recall", "user_id": "a", "topic": "é"}]}`,
		"POST /admin/templates/check-updates":           `{}`,
		"POST /admin/template-sources/acme/rebind":      `{}`,
	}
}

// forWholesome is a site on which every wholesome body is accepted.
func forWholesome(t *testing.T) (*site, caller, map[string]string) {
	s, admin := stocked(t)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	s.clock.tick()
	admin.patch("/admin/templates/chat", `{"tags": ["edited"]}`).is(200)
	return s, admin, wholesome(admin.post("/users/alice/api-keys", "").is(201).text("id"))
}

func (c caller) request(request, body string) answer {
	c.t.Helper()
	method, target, _ := strings.Cut(request, " ")
	return c.send(method, target, body)
}

func TestWholesomeBodies(t *testing.T) {
	t.Parallel()
	for i := range len(wholesome("")) {
		_, admin, bodies := forWholesome(t) // each by itself
		request := slices.Sorted(maps.Keys(bodies))[i]
		if a := admin.request(request, " \t\r\n"+bodies[request]+"\n"); a.status > 201 {
			t.Errorf("%s: %d %s", a.request, a.status, a.body)
		}
	}
}

// Cut off anywhere, or with one byte made something that no JSON text holds, no good body is taken.
func TestDocumentsCutOffOrDamagedAnywhere(t *testing.T) {
	t.Parallel()
	_, admin, bodies := forWholesome(t)
	unchanged := admin.keeps()
	for request, body := range bodies {
		for i := 0; i < len(body); i += longtest.Times(5, 1) {
			if i > 0 {
				admin.request(request, body[:i]).fails(400, "invalid_request")
			}
			for _, damage := range []string{"\xff", "\x00", "\xc0", "\xed\xa0\x80"} {
				admin.request(request, body[:i]+damage+body[i+1:]).fails(400, "invalid_request")
				admin.request(request, body[:i]+damage+body[i:]).fails(400, "invalid_request")
			}
		}
	}
	unchanged()
}
