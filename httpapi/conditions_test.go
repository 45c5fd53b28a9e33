package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
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
