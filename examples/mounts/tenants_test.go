package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// newTenants makes two tenants, each with a template and a key.
func newTenants(t *testing.T) (tenants *svc.Tenants, keys map[string]string) {
	t.Helper()
	tenants = must(svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants(), Config: newConfig()}))
	t.Cleanup(func() { _ = tenants.Close() })
	keys = map[string]string{}
	for _, tenant := range []string{"acme", "ä b"} {
		must(tenants.Create(t.Context(), tenant))
		must(0, tenants.Use(t.Context(), tenant, func(service *svc.Service) error {
			ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
			keys[tenant] = string(must(service.Keys.Issue(t.Context(), svc.Host, ada, svc.NewAPIKey{})).Key)
			must(service.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "t", Content: svc.Content{
				Name: "Of " + tenant, Manifest: []byte(`{"version":"1"}`),
			}}))
			return nil
		}))
	}
	return tenants, keys
}

func check(t *testing.T, host http.Handler, keys map[string]string) {
	t.Helper()
	is := is.New(t)
	c := serve(t, host)
	for tenant, spellings := range map[string][]string{"acme": {"acme", "%61cme"}, "ä b": {"%C3%A4%20b", "%c3%a4%20b"}} {
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
	is.Equal(c.ask("GET", "/t/nobody/ext/svc/me/api-keys", "", "").status, 401)
	is.Equal(c.ask("GET", "/", "", "").body, "the host's own page\n")
}

// Two tenants in one process answer with their own templates, and accept only their own keys.
func TestTenants(t *testing.T) {
	tenants, keys := newTenants(t)
	pattern := "GET /t/{tenant}/ext/svc/me/api-keys"
	before := count(pattern)
	check(t, withTenants(tenants), keys)
	is.New(t).True(count(pattern) > before)
}

// Every router that can have a tenant in its prefix serves all tenants with one Handler.
func TestTenantsOfRouters(t *testing.T) {
	for _, m := range mounts {
		if m.prefix != "/t/{tenant}/ext/svc" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			tenants, keys := newTenants(t)
			check(t, m.serve(t, httpapi.NewTenants(tenants, httpapi.Options{Prefix: m.prefix})), keys)
		})
	}
}
