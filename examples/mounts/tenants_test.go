package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
	"github.com/matryer/is"
)

// tenants makes two tenants in one process, each with a template and a key.
func tenants(t *testing.T, prefix func(tenant string) string) (apis map[string]*httpapi.Handler, keys map[string]string) {
	t.Helper()
	apis, keys = map[string]*httpapi.Handler{}, map[string]string{}
	for _, tenant := range []string{"acme", "ä/b"} {
		service := newService(t, memstore.New())
		ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
		keys[tenant] = string(must(service.Keys.Issue(t.Context(), svc.Host, ada, svc.NewAPIKey{})).Key)
		must(service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "t", Content: svc.Content{
			Name: "Of " + tenant, Manifest: []byte(`{"version":"1"}`),
		}}))
		apis[tenant] = httpapi.New(service, httpapi.Options{Prefix: prefix(tenant)})
	}
	return apis, keys
}

func check(t *testing.T, host http.Handler, keys map[string]string) {
	t.Helper()
	is := is.New(t)
	c := serve(t, host)
	for tenant, spellings := range map[string][]string{"acme": {"acme", "%61cme"}, "ä/b": {"%C3%A4%2Fb", "%c3%a4%2fb"}} {
		for _, escaped := range spellings {
			got := c.ask("GET", "/t/"+escaped+"/ext/svc/admin/templates/t", bearer, "")
			is.Equal(got.status, 200)
			is.True(strings.Contains(got.body, `"name":"Of `+tenant+`"`))
			for whose, key := range keys {
				want := map[bool]int{true: 200, false: 401}[whose == tenant]
				is.Equal(c.ask("GET", "/t/"+escaped+"/ext/svc/me/api-keys", key, "").status, want)
			}
		}
	}
	is.Equal(c.ask("GET", "/t/nobody/ext/svc/me/api-keys", bearer, "").status, 404)
	is.Equal(c.ask("GET", "/", "", "").body, "the host's own page\n")
}

// Two tenants in one process answer with their own templates, and accept only their own keys.
func TestTenants(t *testing.T) {
	apis, keys := tenants(t, func(string) string { return "/t/{tenant}/ext/svc" })
	pattern := "GET /t/{tenant}/ext/svc/me/api-keys"
	before := count(pattern)
	check(t, withTenants(apis), keys)
	is.New(t).True(count(pattern) > before)
}
