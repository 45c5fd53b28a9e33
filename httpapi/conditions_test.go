package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc/httpapi"
)

func (c caller) with(header, value, method, target, body string) answer {
	c.t.Helper()
	return c.sendWith(method, target, body, func(r *http.Request) { r.Header[header] = strings.Split(value, "\n") })
}

const chat = "/admin/templates/chat"

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
	equal(t, "answers", statuses, map[int]int{200: 1, 412: 15})
}

// A PUT, PATCH or DELETE takes a condition, as its document says, or refuses it: it never ignores one.
func TestNoConditionIsIgnored(t *testing.T) {
	s := newSite(t)
	admin := s.admin()
	d, refused := readDocument(t), 0
	for _, route := range httpapi.Routes() {
		if method := route.Method; method == "GET" || method == "POST" {
			continue
		}
		target := strings.NewReplacer("{", "", "}", "").Replace(route.Path)
		for header, value := range map[string]string{"If-Match": `"x"`, "If-None-Match": "*"} {
			a := admin.with(header, value, route.Method, target, "{}")
			switch names := strings.Contains(string(a.body), `"parameter":"`+header+`"`); {
			case d.of(route).takes("IfMatch"):
				equal(t, a.request, header == "If-Match" && names, false)
			case a.status != 400 || !names:
				t.Errorf("%s %s with %s: %d %s", route.Method, route.Path, header, a.status, a.body)
			default:
				refused++
			}
		}
	}
	equal(t, "refused", refused >= 40, true)
}
