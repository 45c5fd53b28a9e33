package routing_test

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/routing"
)

// A path that leads somewhere says all of where: escaped again from what was read, it leads to the same place. One that leads nowhere, or
// not by this method, names the methods that do lead somewhere.
func FuzzMatch(f *testing.F) {
	for _, r := range httpapi.Routes() {
		f.Add(r.Method, r.Path)
		f.Add("HEAD", strings.NewReplacer("{", "%7B", "}", "%2f").Replace(r.Path))
	}
	f.Add("GET", "/admin/templates/%2e%2E/history")
	f.Add("get", "//admin/%74emplates/\xff%")
	f.Add("GET", "/admin/templates/a+b%2B")
	var table routing.Table
	for _, r := range httpapi.Routes() {
		table.Add(r.Method, r.Path)
	}
	f.Fuzz(func(t *testing.T, method, escaped string) {
		at, params, allow := table.Match(method, escaped)
		if at < 0 {
			for _, method := range allow {
				if at, _, _ := table.Match(method, escaped); at < 0 {
					t.Fatalf("%q does not take %s", escaped, method)
				}
			}
			return
		}
		route := httpapi.Routes()[at]
		var again []string
		for segment := range strings.SplitSeq(route.Path, "/") {
			if strings.HasPrefix(segment, "{") {
				value, there := params[strings.Trim(segment, "{}")]
				if !there || value == "" {
					t.Fatalf("%q has no %s", escaped, segment)
				}
				segment = url.PathEscape(value)
			}
			again = append(again, segment)
		}
		same, sameParams, _ := table.Match(method, strings.Join(again, "/"))
		if same != at || !maps.Equal(params, sameParams) || len(params) != strings.Count(route.Path, "{") {
			t.Fatalf("%q leads to %v with %q, and as %q to %d with %q", escaped, route, params, again, same, sameParams)
		}
		var read []string
		for segment := range strings.SplitSeq(escaped, "/") {
			text, err := url.PathUnescape(segment)
			if err != nil {
				t.Fatalf("%q leads to %v", escaped, route)
			}
			read = append(read, url.PathEscape(text))
		}
		if !slices.Equal(read, again) {
			t.Fatalf("%q is read as %q, and says %q", escaped, again, read)
		}
	})
}
