package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// read is the size for reads over HTTP: the database holds only what is read.
var read = size{name: "read", keys: 1000, templates: 1000, known: 100}

// variants are the Services to measure reads with.
var variants = map[string]func(svc.Config) svc.Config{
	"": func(c svc.Config) svc.Config { return c },
	"-kept-in-memory": func(c svc.Config) svc.Config {
		c.Templates.Cached = 0
		return c
	},
}

// variant returns such a Service over the same store.
func (s *site) variant(tb testing.TB, name string) *svc.Service {
	tb.Helper()
	service, err := svc.New(variants[name](config(s.store)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := service.Close(); err != nil {
			tb.Error(err)
		}
	})
	return service
}

// reads returns the endpoints that read and ask no source, on a prepared site.
func reads(ctx context.Context, s *site) ([]pair, error) {
	one, err := s.service.Templates.Read(ctx, svc.Host, templateID(1))
	const admin = httpapi.DefaultPrefix + "/admin/"
	return []pair{
		{name: "template", path: admin + "templates/" + templateID(1), inARow: 2000},
		{name: "template-unchanged", path: admin + "templates/" + templateID(1), etag: one.ETag(), inARow: 2000},
		{name: "templates-1000", path: admin + "templates", inARow: 16},
		{name: "templates-page-20", path: admin + "templates?limit=20", inARow: 500},
		{name: "templates-page-100", path: admin + "templates?limit=100", inARow: 100},
		{name: "templates-of-category", path: admin + "templates?category=category-7", inARow: 500},
		{name: "history", path: admin + "templates/" + templateID(2) + "/history", inARow: 1000},
		{name: "sources", path: admin + "template-sources", inARow: 2000},
		{name: "user-keys", path: httpapi.DefaultPrefix + "/users/" + userID(1) + "/api-keys", inARow: 2000},
		{name: "own-keys", path: httpapi.DefaultPrefix + "/me/api-keys", inARow: 2000},
		{name: "resolve", path: httpapi.DefaultPrefix + "/debug/resolve?user_id=" + principal.ID + "&bank=team::one", inARow: 1000},
		{name: "resolve-me", path: httpapi.DefaultPrefix + "/me/resolve?bank=team::one", inARow: 1000},
		{name: "what-can-i", path: httpapi.DefaultPrefix + "/me/what-can", inARow: 1000},
		{name: "who-can", path: httpapi.DefaultPrefix + "/debug/who-can?bank=team::one", inARow: 1000},
	}, err
}

// unmeasured lists the reading endpoints that are not measured here, and the audit log, which the
// interface keeps only where it is requested.
var unmeasured = []string{
	"/admin/template-sources/{name}/templates", "/admin/source-templates", "/admin/api-keys", "/admin/access-bundle",
	"/admin/templates/{template_id}/check-update", "/admin/templates/{template_id}/diff", "/admin/events",
	"/users", "/users/{user_id}", "/users/{user_id}/channels", "/groups", "/groups/{group_id}", "/groups/{group_id}/members",
	"/policies", "/policies/{policy_id}", "/policy-attachments", "/banks/{bank_id}/policy", "/me",
	"/service-accounts", "/service-accounts/{sa_id}", "/service-accounts/{sa_id}/keys",
	"/me/service-accounts", "/me/service-accounts/{sa_id}", "/me/service-accounts/{sa_id}/keys",
	"/me/template-sources", "/me/template-sources/{name}/templates", "/me/source-templates", "/me/templates", "/me/templates/{template_id}",
	"/me/templates/{template_id}/check-update", "/me/templates/{template_id}/diff", "/me/templates/{template_id}/history",
}

// reader prepares a site for reading, and returns the key of a user who may read everything.
func reader(ctx context.Context, s *site) (key string, err error) {
	if err := s.service.Access.Apply(ctx, svc.Host, svc.Bundle{
		Users:       []svc.User{{ID: "reader"}},
		Policies:    []svc.Policy{{ID: "reads", Document: json.RawMessage(`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["template:admin","iam:users:read","iam:keys:introspect"],"banks":["*"]}]}`)}},
		Attachments: []svc.Attachment{{PolicyID: "reads", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "reader"}}},
	}); err != nil {
		return "", err
	}
	issued, err := s.service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "reader"}, svc.NewAPIKey{})
	if err != nil {
		return "", err
	}
	for i := range 9 { // one exists
		alias := fmt.Sprint("shop-", i)
		_, failed := s.service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: "https://shop.example/" + alias, Alias: &alias})
		if exists := svc.ErrorCode(failed) == svc.CodeExists; !exists {
			err = errors.Join(err, failed)
		}
	}
	for i := range 3 {
		name := fmt.Sprint("Version ", i)
		_, failed := s.service.Templates.Patch(ctx, svc.Host, templateID(2), svc.TemplatePatch{Name: &name})
		err = errors.Join(err, failed)
	}
	return string(issued.Key), err
}

// BenchmarkReads compares the endpoints that read with bare handlers that send the same bytes with
// the same headers.
func BenchmarkReads(b *testing.B) {
	s := siteOf(b, sqliteEngine, read)
	key, err := reader(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	all, err := reads(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	for _, variant := range slices.Sorted(maps.Keys(variants)) {
		b.Run("store"+variant, func(b *testing.B) {
			for _, p := range all {
				p.run(b, s, variant, key)
			}
		})
	}
}

// TestReads checks that every reading endpoint is measured or listed in unmeasured, and that both
// sides give the same answer.
func TestReads(t *testing.T) {
	s := siteOf(t, sqliteEngine, read)
	key, err := reader(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	all, err := reads(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	api, handler := httpapi.New(s.service, httpapi.Options{}), handlers(s.service)
	var measured []string
	for _, p := range all {
		measured = append(measured, api.Pattern(p.request(t.Context(), p.path, key)))
		if err := p.same(t.Context(), handler, key); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	for _, route := range httpapi.Routes() {
		pattern := route.Method + " " + httpapi.DefaultPrefix + route.Path
		if route.Method == http.MethodGet && slices.Contains(measured, pattern) == slices.Contains(unmeasured, route.Path) {
			t.Errorf("%s is not measured, or both measured and not", pattern)
		}
	}
}

// TestListBuffer checks the memory of a list of 1,000 templates of 4 KB, beyond that of the
// Service: a buffer of 64 KB at most, and nothing for each row. The query for the last row, which
// the Link names, makes some hundred allocations.
func TestListBuffer(t *testing.T) {
	s := siteOf(t, sqliteEngine, read)
	key, err := reader(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	handler, list := handlers(s.service), pair{path: httpapi.DefaultPrefix + "/admin/templates"}
	sent, largest := 0, 0
	ask := func() {
		sent = 0
		w := &discard{between: func(piece []byte) { sent, largest = sent+len(piece), max(largest, len(piece)) }}
		handler.ServeHTTP(w, list.request(t.Context(), list.path, key))
	}
	beside := testing.AllocsPerRun(5, ask) - testing.AllocsPerRun(5, func() {
		err = errors.Join(err, drained(s.templates, s.service.Templates.List(t.Context(), svc.Host, svc.TemplateQuery{})))
	})
	t.Logf("%d bytes, in pieces of at most %d, with %.0f allocations beside the service's", sent, largest, beside)
	if err != nil || sent < s.templates*manifestSize || largest > 64<<10 || beside > float64(s.templates)/2 {
		t.Errorf("%v; %d bytes, in pieces of at most %d, with %.0f allocations beside the service's", err, sent, largest, beside)
	}
}
