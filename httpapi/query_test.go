package httpapi_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

// eachQuery calls do with every route, at a path of a site, and with the keys of its query as the document has them.
func eachQuery(t *testing.T, do func(route httpapi.Route, path string, known []string)) {
	t.Helper()
	fill := strings.NewReplacer("{name}", "acme", "{template_id}", "chat", "{user_id}", "alice", "{key_id}", "3kP0xUaB7cJ5t0Qz")
	keys := documentedKeys(t)
	for _, route := range httpapi.Routes() {
		do(route, fill.Replace(route.Path), keys[route])
	}
}

// A mistyped filter does not answer everything: each route refuses a key that it does not know, and names those it knows.
func TestUnknownQueryKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, plain := s.admin(), s.as("session-of-plain")
	eachQuery(t, func(route httpapi.Route, path string, known []string) {
		for _, wrong := range []string{"categry", "Category", "a b", "limit[]", "x/y", "ü"} {
			for _, value := range []string{"", "=", "=x"} {
				a := admin.send(route.Method, path+"?"+url.QueryEscape(wrong)+value, "")
				a.refuses(wrong)
				_, named, _ := strings.Cut(a.text("detail"), "which takes ")
				takes := strings.Split(strings.Replace(strings.TrimSuffix(named, "."), "none", "", 1), ", ")
				slices.Sort(takes)
				expect.Equal(t, a.request, strings.Join(takes, ", "), strings.Join(known, ", "))
			}
		}
		plain.send(route.Method, path+"?categry=x", "").refuses("categry") // before rights
		s.as("").send(route.Method, path+"?categry=x", "").fails(401, "unauthenticated")
		admin.send("BREW", path+"?categry=x", "").fails(405, "method_not_allowed")
	})
	admin.get("/nothing?categry=x").fails(404, "not_found")
}

// Each route reads the keys that it knows: each of them at most once, in any order of the query.
func TestKnownQueryKeys(t *testing.T) {
	t.Parallel()
	admin := newSite(t).admin()
	eachQuery(t, func(route httpapi.Route, path string, known []string) {
		for _, key := range known {
			for _, values := range []string{"=x&" + key + "=x", "&" + key, "=&" + key + "=x", "=x&" + key + "="} {
				admin.send(route.Method, path+"?"+key+values, "").refuses(key)
			}
		}
		for _, query := range []string{"a;b", "a=%zz", ";", "%"} {
			admin.send(route.Method, path+"?"+query, "").refuses("query")
		}
	})
}

// documentedKeys are the keys of the queries of all routes, in order.
func documentedKeys(t *testing.T) map[httpapi.Route][]string {
	d := readDocument(t)
	keys := map[httpapi.Route][]string{}
	for _, route := range httpapi.Routes() {
		for _, p := range d.of(route).Parameters {
			if name, is := strings.CutPrefix(p.Ref, "#/components/parameters/"); is {
				p = d.Components.Parameters[name]
			}
			if p.In == "query" {
				keys[route] = append(keys[route], p.Name)
			}
		}
		slices.Sort(keys[route])
	}
	return keys
}
