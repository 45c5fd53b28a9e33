package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
)

// mounted is a site whose host mounts the interface so.
func mounted(t *testing.T, prefix string, mount func(*httpapi.Handler) http.Handler) *site {
	t.Helper()
	return newSite(t, func(u *setup) { u.Prefix, u.mount = prefix, mount })
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
	const (
		plain   = "there is no such path."
		lacks   = "there is no such path: it does not start with the prefix "
		another = "there is no such path: it ends like a route, but does not start with the prefix "
	)
	for _, test := range []struct {
		name, prefix string
		mount        func(*httpapi.Handler) http.Handler
		target, want string
	}{
		{"nothing is cut off", "", on("/platform/", ""), "/platform/admin/templates", lacks + "/ext/svc."},
		{"nothing is cut off", "", on("/platform/", ""), "/platform/nothing", lacks + "/ext/svc."},
		{"nothing is cut off", "", on("/platform/", ""), "/platform/ext/svc/admin/templates", lacks + "/ext/svc."},
		{"too little is cut off", "", on("/ext/", "/ext"), "/ext/svc/admin/templates", another + "/ext/svc."},
		{"something else is cut off", "/api/v1", on("/api/", "/api"), "/api/v2/me/api-keys/x", another + "/api/v1."},
		{"another prefix", "/api/v1", on("/ext/svc/", ""), "/ext/svc/me/api-keys", lacks + "/api/v1."},
		{"too short a prefix", "/ext", on("/ext/svc/", ""), "/ext/svc/me/api-keys", another + "/ext."},
		{"the prefix twice", "", on("/ext/svc/ext/svc/", ""), "/ext/svc/ext/svc/me/api-keys", another + "/ext/svc."},
		{"the prefix thrice", "", on("/ext/svc/ext/svc/ext/svc/", "/ext/svc"), "/ext/svc/ext/svc/ext/svc/me/api-keys", another + "/ext/svc."},
		{"a prefix where there is to be none", "/", on("/ext/svc/", ""), "/ext/svc/me/api-keys", another + "/."},
		{"no tenant", "/t/{tenant}/ext", on("/ext/", ""), "/ext/me/api-keys", lacks + "/t/{tenant}/ext."},

		{"right", "", on("/ext/svc/", ""), "/ext/svc/nothing", plain},
		{"right", "", on("/ext/svc/", ""), "/ext/svc/", plain},
		{"right", "", on("/ext/svc/", ""), "/ext/svc/admin/templates/a/b/c/d", plain},
		{"right, cut off", "", on("/ext/svc/", "/ext/svc"), "/ext/svc/nothing", plain},
		{"right, another cut off", "", on("/platform/", "/platform"), "/platform/nothing", plain},
		{"right, without a prefix", "/", on("/", ""), "/nothing", plain},
		{"right, of a tenant", "/t/{tenant}/ext", on("/t/{tenant}/ext/", ""), "/t/acme/ext/nothing", plain},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mounted(t, test.prefix, test.mount)
			s.prefix = ""
			if have := s.admin().get(test.target).is(404).text("detail"); have != test.want {
				t.Errorf("%s: %q, want %q", test.target, have, test.want)
			}
			if a := s.as("").get(test.target).is(401); strings.Contains(string(a.body), "prefix") {
				t.Errorf("nobody was told %s", a.body)
			}
		})
	}
}

func TestPrefixes(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the host's page") })
	ahead := func(h *httpapi.Handler) http.Handler { return h.Ahead(page) }
	const api = "/me/api-keys"
	for prefix, statuses := range map[string]map[string]int{ // 0: the host's
		"/t/{tenant}/ext/svc": {
			"/t/acme/ext/svc" + api: 200, "/t/%61/ext/svc" + api: 200, "/t/a%2Fb/ext/svc" + api: 200, "/t/ä/ext/svc" + api: 200,
			"/t/.x/ext/svc" + api: 200, "/t/acme/ext/svc/../svc" + api: 404, "/t/acme//ext/svc" + api: 404, "/t/a%2Fb//ext/svc" + api: 404,
			"//t/acme/ext/svc" + api: 404, "/t//ext/svc" + api: 0, "/t/../ext/svc" + api: 0, "/t/./ext/svc" + api: 0,
			"/t/%2e%2E/ext/svc" + api: 0, "/t/acme/b/ext/svc" + api: 0, "/t/acme": 0,
		},
		"/mémoire/a b/": {
			"/m%C3%A9moire/a%20b" + api: 200, "/mémoire/a%20b" + api: 200, "/m%C3%A9moire//a%20b" + api: 404, "/m%C3%A9moire/./a%20b" + api: 404,
			"/m%C3%A9moire/a" + api: 0, "/memoire/a%20b" + api: 0,
		},
		"m%C3%A9moire":   {"/m%C3%A9moire" + api: 200, "/mémoire" + api: 200, "/m%25C3%25A9moire" + api: 0},
		"/100%/{a}/{b}/": {"/100%25/x/y" + api: 200, "/100%25/x" + api: 404, "/100%25/x": 0},
	} {
		s := mounted(t, prefix, ahead)
		key := s.key("admin")
		for target, want := range statuses {
			response, body := s.raw("GET", target, key)
			if ours := body != "the host's page"; ours != (want != 0) || ours && response.StatusCode != want {
				t.Errorf("%s, %s: answered %d, want %d: %s", prefix, target, response.StatusCode, want, body)
			}
		}
	}
}

// A character that should have been escaped makes no slash of one that was.
func TestEscapedSlashBesideWhatIsNotEscaped(t *testing.T) {
	for name, mount := range mounts {
		s := newSite(t, mount)
		key := s.key("admin")
		targets := []string{`/admin/templates/a%2Fb"`, `/admin/templates/ä%2Fcheck-update`, `/admin/|%2Fcheck-updates`, `/admin/"%2Fx/check-update`}
		for _, target := range targets {
			want := 400
			if strings.Contains(target, "/admin/|") || strings.Contains(target, `/admin/"`) {
				want = 404 // no route
			}
			if response, body := s.raw("GET", s.prefix+target, key); response.StatusCode != want {
				t.Errorf("%s, %s: answered %d: %s", name, target, response.StatusCode, body)
			}
		}
	}
}

// Pattern tells what ServeHTTP sets, and only of requests below the prefix.
func TestPattern(t *testing.T) {
	s := newSite(t)
	api := httpapi.New(s.service, httpapi.Options{Prefix: "/t/{tenant}/ext"})
	for request, want := range map[string]string{
		"GET /t/acme/ext/admin/templates/secret":   "GET /t/{tenant}/ext/admin/templates/{template_id}",
		"HEAD /t/acme/ext/me/api-keys":             "GET /t/{tenant}/ext/me/api-keys",
		"DELETE /t/acme/ext/users/a%2Fb/api-keys":  "DELETE /t/{tenant}/ext/users/{user_id}/api-keys",
		"PUT /t/acme/ext/me/api-keys":              "",
		"GET /t/acme/ext/nothing":                  "",
		"GET /me/api-keys":                         "",
		"GET /ext/svc/me/api-keys":                 "",
		"POST /t/acme/ext/admin/templates/x/check": "",
	} {
		method, target, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, target, nil)
		if have := api.Pattern(r); have != want {
			t.Errorf("%s: %q, want %q", request, have, want)
		}
		r.Header.Set("Authorization", "Bearer "+s.key("admin"))
		if api.ServeHTTP(httptest.NewRecorder(), r); want != "" && r.Pattern != want {
			t.Errorf("%s: served as %q, want %q", request, r.Pattern, want)
		}
	}
}
