package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func source(name, url, description, at string, hasAuth bool) string {
	return fmt.Sprintf(`{"name": %q, "url": %q, "scope": "server", "owner": null, "has_auth": %v, "description": %s,
		"created_at": %q, "updated_at": %[5]q}`, name, url, hasAuth, description, at)
}

func TestSourceOfItsMinimum(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	admin.get("/admin/template-sources").is(200).json(`[]`)
	want := source("acme", "https://github.com/acme/templates", "null", beginText, false)
	admin.post("/admin/template-sources", `{"url": "https://github.com/acme/templates"}`).is(201).json(want)
	admin.get("/admin/template-sources").is(200).json(`[` + want + `]`)
	if asked := s.market.requests(); len(asked) > 0 {
		t.Errorf("registering asked the source: %v", asked)
	}
	admin.delete("/admin/template-sources/acme").is(204)
	admin.delete("/admin/template-sources/acme").fails(404, "not_found")
	admin.get("/admin/template-sources").is(200).json(`[]`)
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

func TestSourceNullMeansAbsent(t *testing.T) {
	admin := newSite(t).admin()
	want := source("acme", "https://h/acme", "null", beginText, false)
	admin.post("/admin/template-sources", `{"url": "https://h/acme", "alias": null, "auth_token": null, "description": null}`).is(201).json(want)
	admin.post("/admin/template-sources", `{"url": "https://h/other", "description": ""}`).is(201).
		json(source("other", "https://h/other", `""`, beginText, false))
}

func TestSourceName(t *testing.T) {
	for url, want := range map[string]string{ // "": refused
		"https://github.com/acme/templates":               "acme",
		"https://github.com/acme/templates.git":           "acme",
		"https://git.example/acme.git":                    "acme",
		"https://git.example/acme.git/sub":                "acme",
		"https://git.example/acme/":                       "acme",
		"https://git.example/acme?x=1":                    "acme",
		"https://git.example/.github/x":                   ".github",
		"https://git.example/a.gitx":                      "a.gitx",
		"https://git.example/%C3%BC/x":                    "ü",
		"https://git.example":                             "",
		"https://git.example/":                            "",
		"https://git.example/.git":                        "",
		"https://git.example/..":                          "",
		"https://git.example/%00":                         "",
		"https://git.example/a%5Cb":                       "",
		"https://git.example/" + strings.Repeat("a", 128): strings.Repeat("a", 128),
		"https://git.example/" + strings.Repeat("a", 129): "",
		"https://git.example/a" + "%E2%80%AE" + "b":       "",
	} {
		admin := newSite(t).admin()
		a := admin.post("/admin/template-sources", fmt.Sprintf(`{"url": %q}`, url))
		if want == "" {
			a.is(400)
		} else if have := a.is(201).text("name"); have != want {
			t.Errorf("%s: named %q, want %q", url, have, want)
		}
		admin.post("/admin/template-sources", fmt.Sprintf(`{"url": %q, "alias": "given"}`, url)).is(201)
	}
}

func TestSourceRefused(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	for body, places := range map[string][]string{
		``:                                       {"/url"},
		`{}`:                                     {"/url"},
		`{"url": null}`:                          {"/url"},
		`{"url": ""}`:                            {"/url"},
		`{"url": 1}`:                             {"/url"},
		`{"url": "http://h/acme"}`:               {"/url"},
		`{"alias": "a"}`:                         {"/url"},
		`{"url": "https://h/a", "alias": ""}`:    {"/alias"},
		`{"url": "https://h/a", "alias": "a/b"}`: {"/alias"},
		`{"url": "https://h/a", "alias": ".."}`:  {"/alias"},
		`{"url": "https://h/a", "alias": "a\u0000"}`:                                 {"/alias"},
		`{"url": "https://h/a", "alias": "a\u202eb"}`:                                {"/alias"},
		`{"url": "https://h/a", "name": "b"}`:                                        {"/name"},
		`{"url": "https://h/a", "scope": "server"}`:                                  {"/scope"},
		`{"url": "https://h/a", "auth_token": ""}`:                                   {"/auth_token"},
		`{"url": "https://h/a", "auth_token": "a\nb"}`:                               {"/auth_token"},
		`{"url": "https://h/a", "description": "\u0000"}`:                            {"/description"},
		`{"url": "", "alias": "/", "auth_token": "a b"}`:                             {"/url", "/alias", "/auth_token"},
		`{"url": "https://h/` + strings.Repeat("a", 2048) + `"}`:                     {"/url"},
		`{"url": "https://h/a", "description": "` + strings.Repeat("ü", 4097) + `"}`: {"/description"},
	} {
		admin.post("/admin/template-sources", body).refuses(places...)
	}
	admin.get("/admin/template-sources").is(200).json(`[]`)
	admin.post("/admin/template-sources", `{"url": "https://h/a", "description": "`+strings.Repeat("ü", 4096)+`"}`).is(201)
}

func TestSourceTokenNeedsASealingKey(t *testing.T) {
	s := newSite(t, func(u *setup) { u.Sources.SealingKey = nil })
	admin := s.admin()
	admin.post("/admin/template-sources", `{"url": "https://h/acme", "auth_token": "t0ken"}`).refuses("/auth_token")
	admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
}

func TestSourceNameTaken(t *testing.T) {
	admin := newSite(t).admin()
	admin.post("/admin/template-sources", `{"url": "https://h/acme"}`).is(201)
	admin.post("/admin/template-sources", `{"url": "https://other/acme/x"}`).fails(409, "already_exists")
	admin.post("/admin/template-sources", `{"url": "https://other/x", "alias": "acme"}`).fails(409, "already_exists")
	admin.post("/admin/template-sources", `{"url": "https://h/acme", "alias": "Acme"}`).is(201)
}

func TestSourcesInOrder(t *testing.T) {
	admin := newSite(t).admin()
	var want []string
	for i := range 120 {
		name := fmt.Sprintf("s%d", (i*37)%120)
		admin.post("/admin/template-sources", fmt.Sprintf(`{"url": "https://h/x", "alias": %q}`, name)).is(201)
		want = append(want, name)
	}
	slices.Sort(want)
	if have := admin.get("/admin/template-sources").is(200).texts("name"); !slices.Equal(have, want) {
		t.Errorf("listed %v", have)
	}
}
