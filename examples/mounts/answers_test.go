package main

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// ids are awkward, and good; refused are escaped ones that are none.
var (
	ids = []string{
		"a", "a b", "%", "100%", "ä", "+", ";", ":", "日本", ".x", "...", "~", "'", `"`, "?", "#", "&=$,@!()*", "a%2Fb", "%61", "{template_id}",
		"check-updates", "install", "api-keys", "me", strings.Repeat("a", 128), strings.Repeat("日", 128),
	}
	refused = []string{"a%2Fb", "a%2fb", "%2F", "a%5Cb", "%00", "%ff", strings.Repeat("a", 129)}
)

// spellings are the ways to write an id in a path.
func spellings(id string) []string {
	var upper, lower strings.Builder
	for _, b := range []byte(id) {
		fmt.Fprintf(&upper, "%%%02X", b)
		fmt.Fprintf(&lower, "%%%02x", b)
	}
	all := []string{url.PathEscape(id), upper.String(), lower.String()}
	if !strings.ContainsAny(id, " %?#/") {
		all = append(all, id)
	}
	return all
}

// bodies are the bodies of the routes that need one.
var bodies = map[string]string{
	"POST /debug/simulate":                           `{"bundle": {}, "query": {"bank": "b", "user_id": "alice"}}`,
	"POST /decide":                                   `{"queries": [{"bank": "{id}", "action": "bank:recall", "user_id": "alice"}]}`,
	"POST /admin/template-sources":                   `{"url": "fs://shelf", "alias": "new"}`,
	"POST /admin/templates":                          `{"id": "new", "name": "n", "manifest": {"version": "1"}}`,
	"PATCH /admin/templates/{template_id}":           `{"name": "n"}`,
	"POST /admin/templates/{template_id}/install":    `{"source_name": "{id}", "alias_id": "copy"}`,
	"POST /admin/templates/{template_id}/rollback":   `{"version": 1}`,
	"PATCH /users/{user_id}/api-keys/{key_id}":       `{"description": "d"}`,
	"PATCH /me/api-keys/{key_id}":                    `{"description": "d"}`,
	"POST /users/{user_id}/api-keys/{key_id}/rotate": `{"overlap_seconds": 60}`,
	"POST /me/api-keys/{key_id}/rotate":              `{"overlap_seconds": 60}`,
}

// stock gives one id to a source, to a template with a history from that source, and to a user. It
// returns the ids of a key of this user and of a key of the caller.
func (s *site) stock(id string) map[string]string {
	s.t.Helper()
	ctx, alias, name := s.t.Context(), id, "Other"
	must(s.service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: "fs://shelf", Alias: &alias}))
	must(s.service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: id, SourceName: id}))
	must(s.service.Templates.Patch(ctx, svc.Host, id, svc.TemplatePatch{Name: &name}))
	keys := map[string]string{}
	for whose, user := range map[string]string{"users": id, "me": "admin"} {
		keys[whose] = must(s.service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: user}, svc.NewAPIKey{})).ID
	}
	return keys
}

// clear deletes what requests have made.
func (s *site) clear() {
	s.t.Helper()
	for _, id := range []string{"new", "copy"} {
		_ = s.service.Templates.Delete(s.t.Context(), svc.Host, id)
	}
	_ = s.service.Sources.Remove(s.t.Context(), svc.Host, "new")
}

// routes has the routes that delete at the end: first for one key, then for all keys.
var routes = slices.SortedStableFunc(slices.Values(httpapi.Routes()), func(a, b httpapi.Route) int {
	if a.Method == "DELETE" && b.Method == "DELETE" {
		return len(b.Path) - len(a.Path)
	}
	return strings.Count(a.Method, "DELETE") - strings.Count(b.Method, "DELETE")
})

// exchange is a request about an id and its answer.
type exchange struct {
	route   httpapi.Route
	escaped string // the id, as it was written
	good    bool   // the request is
	answer
}

// same compares two exchanges, except for the random parts of answers: keys and their ids, when a
// source was asked, and the revision of the cached policies.
func (x exchange) same(as exchange) bool {
	if x.body != as.body {
		x.body, as.body = random.ReplaceAllString(x.body, ""), random.ReplaceAllString(as.body, "")
	}
	return x == as
}

var random = regexp.MustCompile(`svcu_[0-9A-Za-z]+|"id":"[0-9A-Za-z]{16}"|"fetched_at":"[^"]+"|"revision":"[0-9]+"`)

// exchange sends a request to one route, with the id in this spelling.
func (s *site) exchange(route httpapi.Route, id, escaped, key string) exchange {
	s.t.Helper()
	target := strings.NewReplacer("{name}", escaped, "{template_id}", escaped, "{user_id}", escaped, "{key_id}", key).Replace(route.Path)
	switch route.Path {
	case "/debug/resolve":
		target += "?bank=b&user_id=" + url.QueryEscape(id)
	case "/debug/who-can", "/me/resolve":
		target += "?bank=" + url.QueryEscape(id)
	}
	body := strings.ReplaceAll(bodies[route.Method+" "+route.Path], "{id}", strings.ReplaceAll(id, `"`, `\"`))
	return exchange{route, escaped, key != escaped, s.ask(route.Method, s.path()+target, bearer, body)}
}

// readers have an id at the end of their path, and in the middle.
var readers = []httpapi.Route{{Method: "GET", Path: "/admin/templates/{template_id}"}, {Method: "GET", Path: "/users/{user_id}/api-keys"}}

// exchanges returns all routes with all ids, and the readers with all spellings.
func (s *site) exchanges() []exchange {
	s.t.Helper()
	var all []exchange
	for n, id := range ids {
		if raced && n%5 > 0 {
			continue // ids do not race
		}
		keys := s.stock(id)
		for i, escaped := range slices.Backward(spellings(id)) { // the usual one at last: some requests delete
			for _, route := range routes {
				if i > 0 && !slices.Contains(readers, route) {
					continue
				}
				user, _, _ := strings.Cut(route.Path[1:], "/")
				all = append(all, s.exchange(route, id, escaped, keys[user]))
				if strings.Contains(route.Path, "{key_id}") {
					all = append(all, s.exchange(route, id, escaped, escaped)) // no key's
				}
			}
		}
		s.clear()
	}
	for _, escaped := range refused {
		for _, route := range routes {
			if strings.Contains(route.Path, "{") {
				all = append(all, s.exchange(route, "", escaped, escaped))
			}
		}
	}
	return all
}

// The answers of the interface do not depend on its mount. This covers all routes, with ids that a
// router might clean, decode, redirect or route elsewhere.
func TestAnswers(t *testing.T) {
	var want []exchange
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			have := newSite(t, m, ids...).exchanges()
			if want == nil {
				checkReference(t, have)
				want = have
			}
			wrong := 0
			for i, one := range have {
				if !one.same(want[i]) && wrong < 5 {
					t.Errorf("%v of %.80s:\n%v\nand by %s\n%v", one.route, one.escaped, one.answer, mounts[0].name, want[i].answer)
					wrong++
				}
			}
		})
	}
}

func (a answer) String() string {
	return fmt.Sprintf("%d, cut off %v\n%s%.400s", a.status, a.cut, a.header, a.body)
}

// checkReference checks the mount that the others are compared with. Every route works with every
// id in every spelling, and refuses an invalid id.
func checkReference(t *testing.T, all []exchange) {
	t.Helper()
	for _, one := range all {
		bad := slices.Contains(refused, one.escaped)
		if one.route.Path == "/admin/events" && one.status == 404 {
			continue // what is kept would differ from one site to the next
		}
		if one.good && one.status/100 != 2 || bad && one.status != 400 || !one.good && one.status/100 != 4 {
			t.Errorf("%v of %.80s: answered %v", one.route, one.escaped, one.answer)
		}
	}
}
