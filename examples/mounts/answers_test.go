package main

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/longtest"
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

// bodies are those of testdata/bodies.txt, by method and path. Own templates and sources take those of the server's.
var bodies = func() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile("testdata/bodies.txt")))) {
		if words := strings.SplitN(strings.TrimSpace(line), " ", 3); words[0] != "#" {
			all[words[0]+" "+words[1]] = words[2]
		}
	}
	return all
}()

// rows are those of access with an id.
func rows(id string) svc.Bundle {
	document := []byte(`{"version":"2026-03-24","statements":[]}`)
	user := svc.GrantedTo{Type: svc.GrantedToUser, ID: id}
	return svc.Bundle{
		Users:           []svc.User{{ID: "admin"}, {ID: id, Channels: []svc.Channel{{Provider: "slack", SenderID: id}}}},
		Groups:          []svc.Group{{ID: id, Members: []string{id}}},
		ServiceAccounts: []svc.ServiceAccount{{ID: id, OwnerUserID: "admin"}},
		Policies: []svc.Policy{{ID: id, Document: document}, {ID: "makes", Document: []byte(
			`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:create"],"banks":["*"]}]}`)}},
		Attachments: []svc.Attachment{
			{PolicyID: id, Principal: user}, {PolicyID: "makes", Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "admin"}},
		},
		BankPolicies: []svc.BankPolicy{{BankID: id, Document: []byte(`{"version":"2026-03-24"}`)}},
	}
}

// stock gives one id to a source and to a template with a history from that source, of the server
// and of the caller, and to rows of access. It returns the ids of keys, by how their paths begin: of
// the user, of the caller, and two of the service account.
func (s *site) stock(id string) map[string]string {
	s.t.Helper()
	ctx, alias, name := s.t.Context(), id, "Other"
	for _, o := range s.owned() {
		must(o.sources.Register(ctx, admin, svc.NewSource{URL: "fs://shelf", Alias: &alias}))
		must(o.Install(ctx, admin, svc.Install{TemplateID: id, SourceName: id}))
		must(o.Patch(ctx, admin, id, svc.TemplatePatch{Name: &name}))
	}
	if err := s.service.Access.Apply(ctx, svc.Host, rows(id)); err != nil {
		s.t.Fatal(err)
	}
	keys := map[string]string{}
	for begin, holder := range map[string]svc.Identity{
		"/users/": {Kind: svc.KindUser, ID: id}, "/me/api-keys/": {Kind: svc.KindUser, ID: "admin"},
		"/service-accounts/": {Kind: svc.KindServiceAccount, ID: id}, "/me/service-accounts/": {Kind: svc.KindServiceAccount, ID: id},
	} {
		keys[begin] = must(s.service.Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{})).ID
	}
	return keys
}

// clear deletes what requests have made.
func (s *site) clear() {
	s.t.Helper()
	for _, o := range s.owned() {
		for _, id := range []string{"new", "copy"} {
			_ = o.Delete(s.t.Context(), admin, id)
		}
		_ = o.sources.Remove(s.t.Context(), admin, "new")
	}
	for _, id := range []string{"new", "mine"} {
		_ = s.service.Users.Delete(s.t.Context(), svc.Host, id)
		_ = s.service.Groups.Delete(s.t.Context(), svc.Host, id)
		_ = s.service.Policies.Delete(s.t.Context(), svc.Host, id)
		_ = s.service.ServiceAccounts.Delete(s.t.Context(), svc.Host, id)
	}
}

// owned has the templates and sources of the server, or the caller's own.
type owned struct {
	*svc.Templates
	sources *svc.Sources
}

func (s *site) owned() []owned {
	return []owned{{s.service.Templates, s.service.Sources}, {s.service.MyTemplates, s.service.MySources}}
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

var random = regexp.MustCompile(`svc[us]_[0-9A-Za-z]+|"id":"[0-9A-Za-z]{16}"|"fetched_at":"[^"]+"|"revision":"[0-9]+"`)

// exchange sends a request to one route, with the id in this spelling.
func (s *site) exchange(route httpapi.Route, id, escaped, key string) exchange {
	s.t.Helper()
	target := strings.NewReplacer("{key_id}", key, "{provider}", "slack", "{principal_type}", "user").Replace(route.Path)
	target = parameter.ReplaceAllLiteralString(target, escaped)
	switch route.Path {
	case "/debug/resolve":
		target += "?bank=b&user_id=" + url.QueryEscape(id)
	case "/debug/who-can", "/me/resolve", "/banks/policy":
		target += "?bank=" + url.QueryEscape(id)
	case "/admin/api-keys":
		target += "?expires_before=2026-01-01T00:00:00Z" // none: keys of one time come in the order of their random ids
	}
	like := strings.Replace(route.Path, "/me/template", "/admin/template", 1)
	body := strings.ReplaceAll(bodies[route.Method+" "+like], "{id}", strings.ReplaceAll(id, `"`, `\"`))
	// Service accounts have one id, and policies of banks two paths, so each is deleted once.
	good := key != escaped && route != httpapi.Route{Method: "DELETE", Path: "/service-accounts/{sa_id}"} &&
		route != httpapi.Route{Method: "DELETE", Path: "/banks/policy"}
	return exchange{route, escaped, good, s.ask(route.Method, s.path()+target, bearer, body)}
}

// readers have an id at the end of their path, and in the middle.
var readers = []httpapi.Route{{Method: "GET", Path: "/admin/templates/{template_id}"}, {Method: "GET", Path: "/users/{user_id}/api-keys"}}

// exchanges returns all routes with all ids, and the readers with all spellings.
func (s *site) exchanges() []exchange {
	s.t.Helper()
	var all []exchange
	for n, id := range ids {
		if longtest.Raced && n%5 > 0 {
			continue // ids do not race
		}
		keys := s.stock(id)
		for i, escaped := range slices.Backward(spellings(id)) { // the usual one at last: some requests delete
			for _, route := range routes {
				if i > 0 && !slices.Contains(readers, route) {
					continue
				}
				key := ""
				for begin := range keys {
					if strings.HasPrefix(route.Path, begin) {
						key = keys[begin]
					}
				}
				all = append(all, s.exchange(route, id, escaped, key))
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
	longtest.Test(t, "that answers do not depend on the mount")
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

var foreign = regexp.MustCompile(`\{(bank|sender)_id\}`)

// checkReference checks the mount that the others are compared with. Every route works with every
// id in every spelling, and refuses an invalid id.
func checkReference(t *testing.T, all []exchange) {
	t.Helper()
	for _, one := range all {
		bad := slices.Contains(refused, one.escaped)
		if slices.Contains(refused[:4], one.escaped) && foreign.MatchString(one.route.Path) {
			continue // other systems' names may have slashes
		}
		if one.route.Path == "/admin/events" && one.status == 404 {
			continue // what is kept would differ from one site to the next
		}
		if one.good && one.status/100 != 2 || bad && one.status != 400 || !one.good && one.status/100 != 4 {
			t.Errorf("%v of %.80s: answered %v", one.route, one.escaped, one.answer)
		}
	}
}
