package httpapi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/extsvc/svc"
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

const offered = "/admin/template-sources/acme/templates"

func TestSourceTemplates(t *testing.T) {
	s, admin := stocked(t)
	description, category := "d", "talk"
	s.market.entries["full"] = svc.Content{
		Name: "Full", Description: &description, Category: &category, Integrations: []string{"b", "a"}, Tags: []string{"t"}, Manifest: []byte(`{"version": "1"}`),
	}
	s.market.entries["file"] = svc.Content{Name: "File"} // its manifest has not been asked for
	s.market.bad = []svc.CatalogProblem{{Index: 7, Reason: "it must be an object"}, {Index: 9, ID: "twice", Reason: "its id is there more than once"}}
	admin.post("/admin/templates/chat/install", `{"source_name": "acme"}`).is(200)
	admin.post("/admin/templates/chat/install", `{"source_name": "acme", "alias_id": "another"}`).is(200)

	chat := func(behind string) string {
		return `{"id": "chat", "name": "Chat", "description": null, "category": null, "integrations": [], "tags": [], "installed_as": ["another", "chat"], "behind": ` + behind + `}`
	}
	const (
		file = `{"id": "file", "name": "File", "description": null, "category": null, "integrations": [], "tags": [], "installed_as": [], "behind": null}`
		full = `{"id": "full", "name": "Full", "description": "d", "category": "talk", "integrations": ["b", "a"], "tags": ["t"], "installed_as": [], "behind": null}`
		bad  = `], "bad": [{"index": 7, "id": null, "reason": "it must be an object"}, {"index": 9, "id": "twice", "reason": "its id is there more than once"}],`
		now  = bad + `"stale": false, "fetched_at": "` + beginText + `"}`
		then = bad + `"stale": true, "fetched_at": "` + beginText + `"}`
	)
	admin.get(offered).is(200).json(`{"templates": [` + chat("false") + `,` + file + `,` + full + now)
	for _, query := range []string{"?category=talk", "?tag=t", "?category=talk&tag=t"} {
		admin.get(offered + query).is(200).json(`{"templates": [` + full + now)
	}
	for _, query := range []string{"?category=Talk", "?tag=d", "?category=talk&tag=x"} {
		admin.get(offered + query).is(200).json(`{"templates": [` + now)
	}
	s.market.offer("chat", "Chat", `{"version": "2"}`)
	admin.get(offered + "?category=&tag=").is(200).json(`{"templates": [` + chat("true") + `,` + file + `,` + full + now)

	s.market.fail(errors.New("dial tcp 10.1.2.3: refused"))
	admin.get(offered).fails(502, "source_failed")
	s.market.fail(&svc.Error{Code: svc.CodeSourceTimeout, Message: "did not arrive in time"})
	admin.get(offered).fails(504, "source_timeout")
	s.market.remembers = true
	admin.get(offered + "?tag=t").is(200).json(`{"templates": [` + full + then)

	before := len(s.market.requests())
	admin.get(offered + "?tag=a&tag=b").refuses("tag")
	admin.get(offered + "?category=a&category=a").refuses("category")
	admin.get(offered + "?category=%00").refuses("category")
	admin.get(offered + "?a;b").refuses("query")
	admin.get("/admin/template-sources/nobody/templates").fails(404, "not_found")
	s.as("").get(offered).is(401)
	s.as("session-of-plain").get(offered).fails(403, "forbidden")
	s.as("session-of-barred+template:admin").get(offered).fails(403, "forbidden")
	s.as("session-of-templater").get(offered).is(200)
	admin.send("HEAD", offered, "").is(200)
	if after := len(s.market.requests()); after != before+2 {
		t.Errorf("the source was asked %d times", after-before)
	}
	admin.delete("/admin/template-sources/acme").is(204)
	admin.get(offered).fails(404, "not_found")
}
