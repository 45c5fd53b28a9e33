package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/httpapi"
)

// mounting lets the host of a site mount the interface so.
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
				"another": none + ": it ends like a route, but does not start with the prefix " + words[4] + ".",
			}[words[3]]
			s := newSite(t, mounting(strings.Trim(line[0], "-"), on(words[0], strings.Trim(words[1], "-"))))
			s.prefix = ""
			if have := s.admin().get(words[2]).is(404).text("detail"); have != want {
				t.Errorf("%q, want %q", have, want)
			}
			if a := s.as("").get(words[2]).is(401); strings.Contains(string(a.body), "prefix") {
				t.Errorf("nobody was told %s", a.body)
			}
		})
	}
}

func TestPrefixes(t *testing.T) {
	sites, keys := map[string]*site{}, map[string]string{}
	for _, line := range raw("prefixes", nil) {
		target, prefix, _ := strings.Cut(line[1], " ")
		if sites[prefix] == nil {
			sites[prefix] = newSite(t, mounting(prefix, ahead))
			keys[prefix] = sites[prefix].key("admin")
		}
		want := must(strconv.Atoi(line[0])) // 0: the host's
		response, body := sites[prefix].raw("GET", target, keys[prefix])
		if ours := body != "the host's page"; ours != (want != 0) || ours && response.StatusCode != want {
			t.Errorf("%s, %s: answered %d, want %d: %s", prefix, target, response.StatusCode, want, body)
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
	for _, line := range raw("patterns", nil) {
		request := strings.Join(line[:], " ")
		method := line[0]
		target, want, _ := strings.Cut(line[1], " -> ")
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

// ahead mounts the interface ahead of pages of the host.
func ahead(h *httpapi.Handler) http.Handler {
	return h.Mount(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the host's page") }))
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
	if have := httpapi.Routes(); !slices.Equal(have, want) || len(want) < 100 {
		t.Error("the list is handed out itself, not a copy")
	}
}

func TestOddTargets(t *testing.T) {
	for _, mount := range []string{"ahead of a mux", "alone", "alone, without a prefix"} {
		s := newSite(t, mounts[mount])
		key, targets, alone := s.key("admin"), raw("odd", nil), mount != "ahead of a mux"
		if alone {
			targets = append(targets, [2]string{"-", "/"}, [2]string{"-", "//"}, [2]string{"-", "/.."})
			if response, _ := s.raw("GET", "*", ""); response.StatusCode < 400 {
				t.Errorf("%s, *: %d", mount, response.StatusCode)
			}
		}
		for _, line := range targets {
			target := line[1]
			for _, method := range []string{"GET", "POST", "CONNECT", "HEAD"} {
				if method == "CONNECT" && !strings.HasPrefix(target, "/") {
					continue
				}
				if response, body := s.raw(method, target, ""); response.StatusCode != 401 || strings.Contains(body, "host") {
					t.Errorf("%s, %s %s: %d without a bearer: %s", mount, method, target, response.StatusCode, body)
				}
				response, body := s.raw(method, target, key)
				malformed := response.StatusCode == 400 && (alone || strings.HasSuffix(target, "templates/."))
				if good := malformed || response.StatusCode == 404 || response.StatusCode == 405; !good || strings.Contains(body, "host") {
					t.Errorf("%s, %s %s: %d with a bearer: %s", mount, method, target, response.StatusCode, body)
				}
			}
		}
	}
	s := newSite(t, mounts["ahead of a mux"])
	for _, target := range []string{"/", "/ext", "/ext/", "/ext/svcs", "/ext/svc.", "/EXT/svc/admin/templates", "/other/ext/svc/admin/templates"} {
		if response, body := s.raw("GET", target, ""); response.StatusCode != 200 || body != "the host's page" {
			t.Errorf("%s: %d, not the host's: %s", target, response.StatusCode, body)
		}
	}
}

// raw sends a request of its own making over a connection of its own.
func (s *site) raw(method, target, bearer string) (*http.Response, string) {
	s.t.Helper()
	conn := must(net.Dial("tcp", s.server.Listener.Addr().String()))
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
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
			next := ahead(h)
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

// A missing service is found when the handler is made, and not with the first request.
func TestNewNeedsAService(t *testing.T) {
	for want, construct := range map[string]func(){
		"httpapi: New needs a Service":      func() { httpapi.New(nil, httpapi.Options{}) },
		"httpapi: NewTenants needs Tenants": func() { httpapi.NewTenants(nil, httpapi.Options{Prefix: "/t/{tenant}"}) },
		"adminpage: New needs a Service":    func() { adminpage.New(nil, adminpage.Options{}) },
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
