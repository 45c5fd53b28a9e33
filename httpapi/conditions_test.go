package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc/httpapi"
)

// with sends a request with a header.
func (c caller) with(header, value, method, target, body string) answer {
	c.t.Helper()
	return c.sendWith(method, target, body, func(r *http.Request) { r.Header[header] = strings.Split(value, "\n") })
}

const chat = "/admin/templates/chat"

// withChat is a site with the template "chat", made by hand.
func withChat(t *testing.T) (*site, caller, string) {
	s := newSite(t)
	admin := s.admin()
	created := admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200)
	tag := created.header.Get("ETag")
	if tag == "" || admin.get(chat).is(200).header.Get("ETag") != tag {
		t.Fatalf("the entity tag is %q", tag)
	}
	s.clock.tick()
	return s, admin, tag
}

// Of many who have seen the same one is let through.
func TestIfMatchAtOnce(t *testing.T) {
	_, admin, tag := withChat(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range 16 {
		group.Go(func() {
			a := admin.with("If-Match", tag, "PATCH", chat, `{"name": "`+strings.Repeat("x", i+1)+`"}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	group.Wait()
	if statuses[200] != 1 || statuses[412] != 15 {
		t.Errorf("answered %v", statuses)
	}
}

// A PUT, PATCH or DELETE takes a condition, as its document says, or refuses it: it never ignores one.
func TestNoConditionIsIgnored(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	paths := parse(t, httpapi.OpenAPI("")).(map[string]any)["paths"].(map[string]any)
	refused := 0
	for _, route := range httpapi.Routes() {
		if method := route.Method; method == "GET" || method == "POST" {
			continue
		}
		operation := paths[route.Path].(map[string]any)[strings.ToLower(route.Method)].(map[string]any)
		parameters, _ := operation["parameters"].([]any)
		takes := slices.ContainsFunc(parameters, func(p any) bool {
			return p.(map[string]any)["$ref"] == "#/components/parameters/IfMatch"
		})
		target := strings.NewReplacer("{", "", "}", "").Replace(route.Path)
		for header, value := range map[string]string{"If-Match": `"x"`, "If-None-Match": "*"} {
			a := admin.with(header, value, route.Method, target, "{}")
			switch names := strings.Contains(string(a.body), `"parameter":"`+header+`"`); {
			case takes:
				if header == "If-Match" && names {
					t.Errorf("%s %s: %s", route.Method, route.Path, a.body)
				}
			case a.status != 400 || !names:
				t.Errorf("%s %s with %s: %d %s", route.Method, route.Path, header, a.status, a.body)
			default:
				refused++
			}
		}
	}
	if refused < 40 {
		t.Errorf("%d are refused", refused)
	}
}
