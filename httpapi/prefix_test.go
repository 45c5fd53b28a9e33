package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/routing"
)

func mounting(prefix string, mount func(*httpapi.Handler) http.Handler) func(*setup) {
	return func(u *setup) { u.Prefix, u.mount = prefix, mount }
}

// on mounts the interface on a mux, below a path that is cut off before.
func on(path, cut string) func(*httpapi.Handler) http.Handler {
	return func(h *httpapi.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle(path, http.StripPrefix(cut, h))
		return mux
	}
}

// For an authenticated caller, the 404 says when a path has no route because the mount is wrong.
func TestWrongMounts(t *testing.T) {
	const none = "there is no such path"
	for _, line := range raw("mounted", nil) {
		t.Run(line[0]+" "+line[1], func(t *testing.T) {
			words := append(strings.Split(line[1], " "), "") // path, cut, target, how, prefix
			want := map[string]string{
				"plain": none + ".", "lacks": none + ": it does not start with the prefix " + words[4] + ".",
				"another": none + ": it ends like a route, but that does not follow the prefix " + words[4] + ".",
			}[words[3]]
			s := newSite(t, mounting(strings.Trim(line[0], "-"), on(words[0], strings.Trim(words[1], "-"))))
			s.prefix = ""
			expect.Equal(t, line, s.admin().get(words[2]).is(404).text("detail"), want)
			expect.Equal(t, line, strings.Contains(string(s.as("").get(words[2]).is(401).body), "prefix"), false)
		})
	}
}

// hostsPage is what a page of the host answers, with 200.
const hostsPage = `"the host's page"`

// asIs sends a request whose target no client would send, and returns the status: 0 when the host has answered.
func (s *site) asIs(method, target, bearer string) int {
	s.t.Helper()
	a := s.talk(s.lines(method+" "+target+" HTTP/1.1", bearer, "Content-Length: 0"))[0]
	if strings.HasPrefix(string(a.body), hostsPage) && a.status == 200 {
		return 0
	}
	return a.status
}

func TestPrefixes(t *testing.T) {
	sites, keys := map[string]*site{}, map[string]string{}
	for _, line := range raw("prefixes", nil) {
		target, prefix, _ := strings.Cut(line[1], " ")
		if sites[prefix] == nil {
			sites[prefix] = newSite(t, mounting(prefix, ahead))
			keys[prefix] = sites[prefix].key("admin")
		}
		expect.Equal(t, line, sites[prefix].asIs("GET", target, keys[prefix]), must(strconv.Atoi(line[0])))
	}
}

// A character that should have been escaped makes no slash of one that was.
func TestEscapedSlashBesideWhatIsNotEscaped(t *testing.T) {
	for name, mount := range mounts {
		s := newSite(t, mount)
		key := s.key("admin")
		for target, want := range map[string]int{
			`/admin/templates/a%2Fb"`: 400, `/admin/templates/ä%2Fcheck-update`: 400,
			`/admin/|%2Fcheck-updates`: 404, `/admin/"%2Fx/check-update`: 404, // no route
		} {
			expect.Equal(t, name+target, s.asIs("GET", s.prefix+target, key), want)
		}
	}
}

// Pattern tells what ServeHTTP sets, and only of requests below the prefix.
func TestPattern(t *testing.T) {
	s := newSite(t)
	api := httpapi.New(s.service, httpapi.Options{Prefix: "/t/{tenant}/ext"})
	for _, line := range raw("patterns", nil) {
		request := strings.Join(line[:], " ")
		method := line[0]
		target, want, _ := strings.Cut(line[1], " -> ")
		r := httptest.NewRequest(method, target, nil)
		expect.Equal(t, request, api.Pattern(r), want)
		api.ServeHTTP(httptest.NewRecorder(), r)
		expect.Equal(t, request, r.Pattern, "") // of nobody: a path may hold private data
		r.Header.Set("Authorization", "Bearer "+s.key("admin"))
		if api.ServeHTTP(httptest.NewRecorder(), r); want != "" {
			expect.Equal(t, request, r.Pattern, want)
		}
	}
}

// The tenant of a path is where the prefix has it, behind what the path has in common with the prefix.
func TestTenantOfAPath(t *testing.T) {
	for of, want := range map[[2]string]string{{"/{tenant}", "/a/x"}: "a", {"/ext/{tenant}", "/other/a"}: "", {"/1/2/3/{tenant}/5", "/1/2/3/a%20b/5"}: "a b", {"/ext", "/ext/a"}: ""} {
		expect.Equal(t, of[1], routing.NewPrefix(of[0]).TenantOf(httptest.NewRequest("GET", of[1], nil), nil), want)
	}
}

func ahead(h *httpapi.Handler) http.Handler {
	return h.Mount(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, hostsPage)
	}))
}

func alone(h *httpapi.Handler) http.Handler { return h }

var mounts = map[string]func(*setup){
	"by a mux":                         mounting("", on("/ext/svc/", "")),
	"by a mux, stripped":               mounting("", on("/ext/svc/", "/ext/svc")),
	"by a mux, elsewhere":              mounting("/api/v1/", on("/api/v1/", "")),
	"ahead of a mux":                   mounting("", ahead),
	"ahead of a mux, elsewhere":        mounting("/api/v1", ahead),
	"ahead of a mux, without a prefix": mounting("/", ahead),
	"alone":                            mounting("", alone),
	"alone, without a prefix":          mounting("/", alone),
}

// What the routes are is in openapi.json and in routes.md, which other tests compare with them.
func TestRoutes(t *testing.T) {
	want := slices.Clone(httpapi.Routes())
	httpapi.Routes()[0].Method = "BREW"
	expect.Holds(t, slices.Equal(httpapi.Routes(), want) && len(want) >= 100, "the list is handed out itself, not a copy")
}

func TestOddTargets(t *testing.T) {
	for _, mount := range []string{"ahead of a mux", "alone", "alone, without a prefix"} {
		s := newSite(t, mounts[mount])
		key, targets, alone := s.key("admin"), raw("odd", nil), mount != "ahead of a mux"
		if alone {
			targets = append(targets, [2]string{"-", "/"}, [2]string{"-", "//"}, [2]string{"-", "/.."})
			expect.Equal(t, mount+", *", s.asIs("GET", "*", "") >= 400, true)
		}
		for _, line := range targets {
			target := line[1]
			for _, method := range []string{"GET", "POST", "CONNECT", "HEAD"} {
				if method == "CONNECT" && !strings.HasPrefix(target, "/") {
					continue
				}
				about := mount + ", " + method + " " + target
				expect.Equal(t, about, s.asIs(method, target, ""), 401)
				status := s.asIs(method, target, key)
				malformed := status == 400 && (alone || strings.HasSuffix(target, "templates/."))
				expect.Equal(t, fmt.Sprint(about, " ", status), malformed || status == 404 || status == 405, true)
			}
		}
	}
	s := newSite(t, mounts["ahead of a mux"])
	for _, target := range []string{"/", "/ext", "/ext/", "/ext/svcs", "/ext/svc.", "/EXT/svc/admin/templates", "/other/ext/svc/admin/templates"} {
		expect.Equal(t, target, s.asIs("GET", target, ""), 0)
	}
}

// A missing service, and a prefix that is no path, are found when the handler is made, and not with the first request.
func TestNewNeedsAService(t *testing.T) {
	with := func(prefix string) func() {
		return func() { httpapi.New(newSite(t).service, httpapi.Options{Prefix: prefix}) }
	}
	for want, construct := range map[string]func(){
		"httpapi: New needs a Service":               func() { httpapi.New(nil, httpapi.Options{}) },
		"httpapi: NewTenants needs Tenants":          func() { httpapi.NewTenants(nil, httpapi.Options{Prefix: "/t/{tenant}"}) },
		"adminpage: New needs a Service":             func() { adminpage.New(nil, adminpage.Options{}) },
		`svc: the Prefix "https://h/svc" is no path`: with("https://h/svc"), `svc: the Prefix " /svc" is no path`: with(" /svc"), `svc: the Prefix "//" is no path`: with("//"),
		`svc: the Prefix "svc/{x" has a brace`: with("/svc/{x"), `svc: the Prefix "x}" has a brace`: with("/x}/"), `svc: the Prefix "a{x}" has a brace`: with("a{x}"),
		"adminpage: NewTenants needs Tenants": func() {
			adminpage.NewTenants(nil, adminpage.Options{Prefix: "/t/{tenant}"})
		},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, want) {
					t.Errorf("panics with %q, want %s", got, want)
				}
			}()
			construct()
		}()
	}
}
