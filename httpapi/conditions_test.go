package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

func (c caller) with(header, value, method, target, body string) answer {
	c.t.Helper()
	return c.sendWith(method, target, body, func(r *http.Request) { r.Header[header] = strings.Split(value, "\n") })
}

// Of many who have seen the same one is let through.
func TestIfMatchAtOnce(t *testing.T) {
	admin := newSite(t).admin()
	tag := admin.post("/admin/templates", `{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}`).is(200).header.Get("ETag")
	statuses, count := make(chan int), map[int]int{}
	for i := range 16 {
		go func() {
			statuses <- admin.with("If-Match", tag, "PATCH", "/admin/templates/chat", fmt.Sprintf(`{"name": "%d"}`, i)).status
		}()
	}
	for range 16 {
		count[<-statuses]++
	}
	expect.Equal(t, "answers", count, map[int]int{200: 1, 412: 15})
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
				expect.Equal(t, a.request, header == "If-Match" && names, false)
			case a.status != 400 || !names:
				t.Errorf("%s %s with %s: %d %s", route.Method, route.Path, header, a.status, a.body)
			default:
				refused++
			}
		}
	}
	expect.Equal(t, "refused", refused >= 40, true)
}
