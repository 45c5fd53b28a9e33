package httpapi_test

import (
	"fmt"
	"testing"
)

func source(name, url, description, at string, hasAuth bool) string {
	return fmt.Sprintf(`{"name": %q, "url": %q, "scope": "server", "owner": null, "has_auth": %v, "description": %s,
		"created_at": %q, "updated_at": %[5]q}`, name, url, hasAuth, description, at)
}

func TestSourceWithAllFields(t *testing.T) {
	const secret = "canary-source-token-4711"
	s := newSite(t)
	s.keepSecret(secret)
	admin := s.admin()
	want := source("mine", "https://example.com", `"d"`, s.clock.tick(), true)
	admin.post("/admin/template-sources", `{"url": "https://example.com", "alias": "mine", "auth_token": "`+secret+`", "description": "d"}`).is(201).json(want)
	admin.get("/admin/template-sources").is(200).json(`[` + want + `]`)
	admin.post("/admin/templates/chat/install", `{"source_name": "mine"}`).is(404)
	if asked := s.market.requests(); len(asked) != 1 || string(asked[0].Token) != secret {
		t.Errorf("the source was not asked with its token")
	}
	admin.post("/admin/template-sources", `{"url": "https://example.com", "alias": "bad", "auth_token": "`+secret+` "}`).refuses("/auth_token")
}
