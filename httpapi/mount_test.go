package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/httpapi"
)

// hostMux is the host's own mux, with pages of its own around the interface.
func hostMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the host's page") })
	return mux
}

var mounts = map[string]func(*setup){
	"by a mux": func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler {
			mux := hostMux()
			mux.Handle("/ext/svc/", h)
			return mux
		}
	},
	"by a mux, stripped": func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler {
			mux := hostMux()
			mux.Handle("/ext/svc/", http.StripPrefix("/ext/svc", h))
			return mux
		}
	},
	"ahead of a mux": func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler { return h.Ahead(hostMux()) }
	},
	"ahead of a mux, elsewhere": func(u *setup) {
		u.Prefix = "/api/v1"
		u.mount = func(h *httpapi.Handler) http.Handler { return h.Ahead(hostMux()) }
	},
	"by a mux, elsewhere": func(u *setup) {
		u.Prefix = "/api/v1/"
		u.mount = func(h *httpapi.Handler) http.Handler {
			mux := hostMux()
			mux.Handle("/api/v1/", h)
			return mux
		}
	},
	"alone": func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler { return h }
	},
	"alone, without a prefix": func(u *setup) {
		u.Prefix = "/"
		u.mount = func(h *httpapi.Handler) http.Handler { return h }
	},
	"ahead of a mux, without a prefix": func(u *setup) {
		u.Prefix = "/"
		u.mount = func(h *httpapi.Handler) http.Handler { return h.Ahead(hostMux()) }
	},
}

func TestMounted(t *testing.T) {
	for name, change := range mounts {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, change)
			admin := s.admin()
			admin.post("/admin/templates", `{"id": "a b", "name": "n", "manifest": {"version": "1"}}`).is(200)
			admin.get("/admin/templates/a%20b").is(200)
			admin.get("/admin/templates?tag=x").is(200).json(`{"templates": []}`)
			admin.get("/admin/templates/a%2Fb").refuses("template_id")
			admin.get("/users/user:a@b/api-keys").is(200)
			admin.patch("/admin/templates", `{}`).fails(405, "method_not_allowed")
			admin.get("/nothing").fails(404, "not_found")
			admin.get("/").fails(404, "not_found")
			admin.get("/admin/templates/").fails(404, "not_found")
			s.as("").get("/nothing").is(401)
			s.as("").get("/admin/templates/").is(401)
			s.as("").get("/").is(401)
			admin.delete("/admin/templates/a%20b").is(204)
		})
	}
}

// accessPaths are the routes of the administration of access.
const accessPaths = `
GET /users
POST /users
GET /users/{user_id}
PUT /users/{user_id}
DELETE /users/{user_id}
GET /users/{user_id}/channels
POST /users/{user_id}/channels
DELETE /users/{user_id}/channels/{provider}/{sender_id}
GET /groups
POST /groups
GET /groups/{group_id}
PUT /groups/{group_id}
DELETE /groups/{group_id}
GET /groups/{group_id}/members
POST /groups/{group_id}/members
DELETE /groups/{group_id}/members/{user_id}
GET /policies
POST /policies
GET /policies/{policy_id}
PUT /policies/{policy_id}
DELETE /policies/{policy_id}
GET /policy-attachments
PUT /policy-attachments
DELETE /policy-attachments/{policy_id}/{principal_type}/{principal_id}
GET /service-accounts
POST /service-accounts
GET /service-accounts/{sa_id}
PUT /service-accounts/{sa_id}
DELETE /service-accounts/{sa_id}
GET /service-accounts/{sa_id}/keys
POST /service-accounts/{sa_id}/keys
DELETE /service-accounts/{sa_id}/keys
PATCH /service-accounts/{sa_id}/keys/{key_id}
DELETE /service-accounts/{sa_id}/keys/{key_id}
POST /service-accounts/{sa_id}/keys/{key_id}/rotate
GET /admin/access-bundle
POST /admin/access-bundle
POST /banks
GET /banks/{bank_id}/policy
PUT /banks/{bank_id}/policy
DELETE /banks/{bank_id}/policy
GET /me
GET /me/service-accounts
POST /me/service-accounts
GET /me/service-accounts/{sa_id}
PUT /me/service-accounts/{sa_id}
DELETE /me/service-accounts/{sa_id}
GET /me/service-accounts/{sa_id}/keys
POST /me/service-accounts/{sa_id}/keys
DELETE /me/service-accounts/{sa_id}/keys
PATCH /me/service-accounts/{sa_id}/keys/{key_id}
DELETE /me/service-accounts/{sa_id}/keys/{key_id}
POST /me/service-accounts/{sa_id}/keys/{key_id}/rotate
`

func TestRoutes(t *testing.T) {
	want := []httpapi.Route{
		{Method: "GET", Path: "/debug/resolve"},
		{Method: "GET", Path: "/debug/who-can"},
		{Method: "POST", Path: "/debug/simulate"},
		{Method: "POST", Path: "/decide"},
		{Method: "POST", Path: "/introspect"},
		{Method: "GET", Path: "/me/resolve"},
		{Method: "GET", Path: "/me/what-can"},
		{Method: "GET", Path: "/admin/template-sources"},
		{Method: "POST", Path: "/admin/template-sources"},
		{Method: "DELETE", Path: "/admin/template-sources/{name}"},
		{Method: "GET", Path: "/admin/template-sources/{name}/templates"},
		{Method: "POST", Path: "/admin/template-sources/{name}/rebind"},
		{Method: "GET", Path: "/admin/source-templates"},
		{Method: "GET", Path: "/admin/templates"},
		{Method: "POST", Path: "/admin/templates"},
		{Method: "POST", Path: "/admin/templates/check-updates"},
		{Method: "GET", Path: "/admin/templates/{template_id}"},
		{Method: "PATCH", Path: "/admin/templates/{template_id}"},
		{Method: "DELETE", Path: "/admin/templates/{template_id}"},
		{Method: "POST", Path: "/admin/templates/{template_id}/install"},
		{Method: "POST", Path: "/admin/templates/{template_id}/update"},
		{Method: "GET", Path: "/admin/templates/{template_id}/check-update"},
		{Method: "GET", Path: "/admin/templates/{template_id}/diff"},
		{Method: "GET", Path: "/admin/templates/{template_id}/history"},
		{Method: "POST", Path: "/admin/templates/{template_id}/rollback"},
		{Method: "GET", Path: "/admin/events"},
		{Method: "GET", Path: "/admin/api-keys"},
		{Method: "GET", Path: "/users/{user_id}/api-keys"},
		{Method: "POST", Path: "/users/{user_id}/api-keys"},
		{Method: "DELETE", Path: "/users/{user_id}/api-keys"},
		{Method: "PATCH", Path: "/users/{user_id}/api-keys/{key_id}"},
		{Method: "DELETE", Path: "/users/{user_id}/api-keys/{key_id}"},
		{Method: "POST", Path: "/users/{user_id}/api-keys/{key_id}/rotate"},
		{Method: "GET", Path: "/me/api-keys"},
		{Method: "POST", Path: "/me/api-keys"},
		{Method: "DELETE", Path: "/me/api-keys"},
		{Method: "PATCH", Path: "/me/api-keys/{key_id}"},
		{Method: "DELETE", Path: "/me/api-keys/{key_id}"},
		{Method: "POST", Path: "/me/api-keys/{key_id}/rotate"},
		{Method: "GET", Path: "/me/template-sources"},
		{Method: "POST", Path: "/me/template-sources"},
		{Method: "DELETE", Path: "/me/template-sources/{name}"},
		{Method: "GET", Path: "/me/template-sources/{name}/templates"},
		{Method: "POST", Path: "/me/template-sources/{name}/rebind"},
		{Method: "GET", Path: "/me/source-templates"},
		{Method: "GET", Path: "/me/templates"},
		{Method: "POST", Path: "/me/templates"},
		{Method: "POST", Path: "/me/templates/check-updates"},
		{Method: "GET", Path: "/me/templates/{template_id}"},
		{Method: "PATCH", Path: "/me/templates/{template_id}"},
		{Method: "DELETE", Path: "/me/templates/{template_id}"},
		{Method: "POST", Path: "/me/templates/{template_id}/install"},
		{Method: "POST", Path: "/me/templates/{template_id}/update"},
		{Method: "GET", Path: "/me/templates/{template_id}/check-update"},
		{Method: "GET", Path: "/me/templates/{template_id}/diff"},
		{Method: "GET", Path: "/me/templates/{template_id}/history"},
		{Method: "POST", Path: "/me/templates/{template_id}/rollback"},
	}
	for _, row := range strings.Split(strings.TrimSpace(accessPaths), "\n") {
		method, path, _ := strings.Cut(row, " ")
		want = append(want, httpapi.Route{Method: method, Path: path})
	}
	if have := httpapi.Routes(); !slices.Equal(have, want) {
		t.Errorf("routes %v", have)
	}
	httpapi.Routes()[0].Method = "BREW"
	if have := httpapi.Routes(); !slices.Equal(have, want) {
		t.Error("the list is handed out itself, not a copy")
	}
}

// odd are request targets, as they go over the wire, that lead below /ext/svc by one reading or another.
var odd = []string{
	"/ext/svc", "/ext/svc/", "//ext/svc/admin/templates", "/ext//svc/admin/templates", "/ext/svc//admin/templates", "///ext/svc/me/api-keys",
	"/ext/svc/../svc/admin/templates", "/ext/./svc/admin/templates", "/x/../ext/svc/admin/templates", "/../ext/svc/admin/templates",
	"/ext/svc/../../other", "/ext/svc/admin/templates/../../../..", "/ext/svc/%2e%2e/other", "/ext/svc/..%2Fother", "/ext/svc/.", "/ext/svc/..",
	"/x/%2e%2e/ext/svc/admin/templates", "/ext%2Fsvc/admin/templates", "/%65xt/svc/admin/templates", "/ext/svc%2Fadmin/templates", "/ext/svc/admin/templates//",
	"/ext/svc/admin/templates/.", "/ext/svc/admin/./templates", "/ext/svc/\\admin/templates", "http://elsewhere.example/ext/svc/nothing",
	"http://elsewhere.example//ext/svc/admin/templates", "/ext/svc/admin/templates;x=1", "/ext/svc/?x", "/ext/svc?x",
}

func TestOddTargetsAheadOfAMux(t *testing.T) {
	s := newSite(t, mounts["ahead of a mux"])
	key := s.key("admin")
	for _, target := range odd {
		for _, method := range []string{"GET", "POST", "CONNECT", "HEAD"} {
			if method == "CONNECT" && !strings.HasPrefix(target, "/") {
				continue
			}
			if response, body := s.raw(method, target, ""); response.StatusCode != 401 || strings.Contains(body, "host") {
				t.Errorf("%s %s: %d without a bearer: %s", method, target, response.StatusCode, body)
			}
			response, body := s.raw(method, target, key)
			good := response.StatusCode == 404 || response.StatusCode == 400 && strings.HasSuffix(target, "templates/.") || response.StatusCode == 405
			if !good || strings.Contains(body, "host") {
				t.Errorf("%s %s: %d with a bearer: %s", method, target, response.StatusCode, body)
			}
		}
	}
	for _, target := range []string{"/", "/ext", "/ext/", "/ext/svcs", "/ext/svc.", "/EXT/svc/admin/templates", "/other/ext/svc/admin/templates"} {
		if response, body := s.raw("GET", target, ""); response.StatusCode != 200 || body != "the host's page" {
			t.Errorf("%s: %d, not the host's: %s", target, response.StatusCode, body)
		}
	}
}

func TestOddTargetsAlone(t *testing.T) {
	for _, mount := range []string{"alone", "alone, without a prefix"} {
		s := newSite(t, mounts[mount])
		for _, target := range append(odd, "*", "/", "//", "/..") {
			if target == "*" {
				if response, _ := s.raw("GET", target, ""); response.StatusCode < 400 {
					t.Errorf("%s, %s: %d", mount, target, response.StatusCode)
				}
				continue
			}
			if response, body := s.raw("GET", target, ""); response.StatusCode != 401 {
				t.Errorf("%s, %s: %d without a bearer: %s", mount, target, response.StatusCode, body)
			}
			if response, body := s.raw("GET", target, s.key("admin")); response.StatusCode != 404 && response.StatusCode != 400 {
				t.Errorf("%s, %s: %d with a bearer: %s", mount, target, response.StatusCode, body)
			}
		}
	}
}

// raw sends a request of its own making over a connection of its own.
func (s *site) raw(method, target, bearer string) (*http.Response, string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	authorization := ""
	if bearer != "" {
		authorization = "Authorization: Bearer " + bearer + "\r\n"
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: elsewhere.example\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", method, target, authorization)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	if location := response.Header.Get("Location"); location != "" {
		s.t.Errorf("%s %s: redirects to %q", method, target, location)
	}
	return response, string(body)
}

// The host's access log has routes instead of paths, because a path may hold private data.
func TestPatternForTheAccessLog(t *testing.T) {
	var patterns []string
	s := newSite(t, func(u *setup) {
		u.mount = func(h *httpapi.Handler) http.Handler {
			next := h.Ahead(hostMux())
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r)
				patterns = append(patterns, r.Pattern)
			})
		}
	})
	admin := s.admin()
	admin.get("/admin/templates/secret?").is(404)
	admin.sendWith("HEAD", "/me/api-keys", "", nil).is(200)
	admin.delete("/me/api-keys/" + admin.bearer).is(404)
	admin.get("/nothing").is(404)
	s.as("").get("/me/api-keys").is(401)
	want := []string{"GET /ext/svc/admin/templates/{template_id}", "GET /ext/svc/me/api-keys", "DELETE /ext/svc/me/api-keys/{key_id}", "", ""}
	if !slices.Equal(patterns, want) {
		t.Errorf("patterns %q, want %q", patterns, want)
	}
}
