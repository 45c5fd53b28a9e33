package main

import (
	"cmp"
	"context"
	"errors"
	"expvar"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

type mount struct {
	name   string
	base   string // the public path of the interface; "": /ext/svc
	prefix string // Options.Prefix
	hidden bool   // the public path is not below the prefix
	early  early
	host   func(*httpapi.Handler) http.Handler
	front  func(t *testing.T, host http.Handler) http.Handler // what stands before the host; nil: nothing
}

// early lists the router's own answers before authentication; "" means none. They go to odd targets
// inside and outside the base, to the bare base, to unknown methods, and to targets that lead to
// the interface only when unescaped.
type early struct{ outside, inside, bare, method, escaped string }

const here = "/ext/svc"

// mounts are all tested mounts. The others are compared with the first.
var mounts = slices.Concat(netMounts, chiMounts, echoMounts, ginMounts)

func (m mount) path() string { return cmp.Or(m.base, here) }

func (m mount) pattern() string { return cmp.Or(m.prefix, here) }

func (m mount) serve(t *testing.T, api *httpapi.Handler) http.Handler {
	t.Helper()
	if m.front == nil {
		return m.host(api)
	}
	return m.front(t, m.host(api))
}

var (
	byMux   = early{outside: "307", inside: "307", bare: "307", escaped: "200"}
	byProxy = early{outside: "404", escaped: "404"}
)

var netMounts = []mount{
	{name: "net/http", host: withMux},
	{name: "net/http, alone", host: alone},
	{name: "net/http, Handle", early: byMux, host: handled("/ext/svc/")},
	{name: "net/http, StripPrefix", early: byMux, host: stripped("/ext/svc")},
	{name: "net/http, StripPrefix of another", base: "/api/v1", prefix: "/api/v1", early: byMux, host: stripped("/api/v1")},
	{name: "net/http, StripPrefix of one unknown to the Handler", base: "/api/v1", hidden: true, early: byMux, host: stripped("/api/v1")},
	{name: "net/http, StripPrefix of a part", prefix: "/svc", hidden: true,
		early: early{outside: "307", inside: "307", escaped: "200"}, host: stripped("/ext")},
	{name: "net/http, another prefix", base: "/api/v1", prefix: "/api/v1", host: withMux},
	{name: "net/http, a prefix to escape", base: "/m%C3%A9moire%20vive", prefix: "/mémoire vive", host: withMux},
	{name: "net/http, a tenant", base: "/t/acme/ext/svc", prefix: "/t/{tenant}/ext/svc", host: withMux},
	{name: "net/http, an odd tenant", base: "/t/a%2Fb%c3%a4/ext/svc", prefix: "/t/{tenant}/ext/svc", early: early{escaped: "404"},
		host: withMux},
	{name: "net/http, a tenant, Handle", base: "/t/acme/ext/svc", prefix: "/t/{tenant}/ext/svc", early: byMux,
		host: handled("/t/{tenant}/ext/svc/")},
	{name: "net/http, TimeoutHandler", host: withMux, front: func(_ *testing.T, host http.Handler) http.Handler {
		return http.TimeoutHandler(host, time.Hour, "")
	}},
	{name: "proxy", base: "/public/place/ext/svc", hidden: true, early: byProxy, host: withMux, front: proxy},
	{name: "proxy that cuts all off", base: "/public/place", prefix: "/", hidden: true, early: byProxy, host: alone, front: proxy},
}

func alone(api *httpapi.Handler) http.Handler { return api }

func handled(pattern string) func(*httpapi.Handler) http.Handler {
	return func(api *httpapi.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/", home)
		mux.Handle(pattern, api)
		return mux
	}
}

func stripped(prefix string) func(*httpapi.Handler) http.Handler {
	return func(api *httpapi.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/", home)
		mux.Handle(prefix+"/", http.StripPrefix(prefix, api))
		return mux
	}
}

// proxy removes a prefix that the host does not know.
func proxy(t *testing.T, host http.Handler) http.Handler {
	back := httptest.NewServer(host)
	t.Cleanup(back.Close)
	target := must(url.Parse(back.URL))
	return http.StripPrefix("/public/place", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
}

// below are targets that every router takes to be the interface's, odd those that lead there by one reading or another.
var (
	below = []string{
		"{base}/", "{base}/?x", "{base}/nothing", "{base}/me/api-keys/", "{base}/me/api-keys;x=1", "{base}/%6de/api-keys",
		"{base}/admin/templates/a%2Fb", "{base}/admin/templates/%2e", "{base}/admin/templates/%2E%2e", `{base}/\me/api-keys`,
		"http://elsewhere.example{base}/nothing",
	}
	odd = struct{ outside, inside, bare, escaped []string }{
		outside: []string{
			"/{base}/me/api-keys", "//{base}/me/api-keys", "/x/..{base}/me/api-keys", "/.{base}/me/api-keys", "/..{base}/me/api-keys",
			"http://elsewhere.example/{base}/me/api-keys",
		},
		inside: []string{
			"{base}//me/api-keys", "{base}/me/api-keys//", "{base}/./me/api-keys", "{base}/me/../me/api-keys", "{base}/.", "{base}/..",
			"{base}/../other", "{base}/me/api-keys/../../../..", "{base}/admin/templates/.", "{base}/..%2Fother", "{base}/%2e%2e/other",
		},
		bare:    []string{"{base}", "{base}?x"},
		escaped: []string{"/x/%2e%2e{base}/me/api-keys", "{base}%2Fme/api-keys"},
	}
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

// before collects the answers to targets without a bearer, except 401.
func (s *site) before(methods, targets []string) string {
	s.t.Helper()
	var early []string
	for _, target := range targets {
		for _, method := range methods {
			got := s.ask(method, strings.ReplaceAll(target, "{base}", s.path()), "", "")
			if got.status != 401 {
				early = append(early, strconv.Itoa(got.status))
			} else if strings.Contains(got.header, "Location: [\"") || got.cut {
				s.t.Errorf("%s %s: answered %v", method, target, got)
			}
		}
	}
	slices.Sort(early)
	return strings.Join(slices.Compact(early), " ")
}

// No request gets an answer before authentication, neither a redirect nor a page. A router may
// answer first only as the table of mounts says, and never on a path of the interface.
func TestNobodyIsAnsweredUnknown(t *testing.T) {
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			s := newSite(t, m)
			if have := s.before(methods, below); have != "" {
				t.Errorf("answered %s", have)
			}
			have := early{
				s.before(methods, odd.outside), s.before(methods, odd.inside), s.before(methods, odd.bare),
				s.before([]string{"BREW"}, below), s.before(methods, odd.escaped),
			}
			if have != m.early {
				t.Errorf("the router answers %+v, not %+v", have, m.early)
			}
		})
	}
}

// breaking is a store whose lists fail after the first chunk.
type breaking struct {
	svc.Store
	chunks int
}

func (b *breaking) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	if b.chunks++; b.chunks > 2 {
		return nil, errors.New("disk on fire")
	}
	return b.Store.Templates(ctx, page)
}

// half requests a list that breaks off in the middle.
func half(t *testing.T, m mount) answer {
	t.Helper()
	store := memstore.New()
	service := newService(t, &breaking{Store: store})
	for i := range 150 {
		in := svc.NewTemplate{ID: fmt.Sprintf("t%03d", i), Content: svc.Content{
			Name: "Same", Manifest: []byte(`{"version":"1","padding":"` + strings.Repeat("x", 4<<10) + `"}`),
		}}
		must(service.Templates.Create(t.Context(), svc.Host, in))
	}
	host := m.serve(t, httpapi.New(service, httpapi.Options{Prefix: m.prefix}))
	return serve(t, host).ask("GET", m.path()+"/admin/templates", bearer, "")
}

// No middleware makes half a list look complete.
func TestHalfAListIsCutOff(t *testing.T) {
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			if got := half(t, m); !got.cut {
				t.Errorf("answered %v", got)
			}
		})
	}
}

func page(t *testing.T) string {
	return string(must(os.ReadFile("../../docs/howto/mount.md")))
}

// docs/howto/mount.md lists the answers of routers before authentication; the list is right: see
// TestNobodyIsAnsweredUnknown.
func TestTableOfRouters(t *testing.T) {
	text := page(t)
	for row, names := range map[string][]string{
		"`Mount`, as above":                                    {"net/http", "chi", "echo", "gin"},
		"`mux.Handle(\"/ext/svc/\", api)`":                     {"net/http, Handle", "net/http, StripPrefix"},
		"chi: `r.Mount(\"/ext/svc\", api)`":                    {"chi, Mount"},
		"chi: `r.Handle(\"/ext/svc/*\", api)`":                 {"chi, Handle"},
		"echo: `e.Any(\"/ext/svc/*\", echo.WrapHandler(api))`": {"echo, Any"},
		"gin: `r.Any(\"/ext/svc/*path\", gin.WrapH(api))`":     {"gin, Any", "gin, Any, UseRawPath"},
		"gin: `r.NoRoute(gin.WrapH(api.Mount(page)))`":         {"gin, NoRoute"},
	} {
		for _, name := range names {
			at := slices.IndexFunc(mounts, func(m mount) bool { return m.name == name })
			if at < 0 {
				t.Fatalf("no mount %q", name)
			}
			e := mounts[at].early
			row := strings.Join([]string{"", row, e.outside, e.inside, e.bare, e.method, ""}, " | ")
			row = strings.ReplaceAll(strings.TrimSpace(row), "|  |", "| – |")
			if row = strings.ReplaceAll(row, "|  |", "| – |"); !strings.Contains(text, row+"\n") {
				t.Errorf("docs/howto/mount.md has not\n%s", row)
			}
		}
	}
}

var parameter = regexp.MustCompile(`\{\w+\}`)

// request returns a request to a route, with an id that no metric may show.
func request(base string, route httpapi.Route, bearer string) *http.Request {
	r := httptest.NewRequest(route.Method, base+parameter.ReplaceAllString(route.Path, "secret"), nil)
	r.Header.Set("Authorization", "Bearer "+bearer)
	return r
}

func count(pattern string) int64 {
	if n, there := served.Get(pattern).(*expvar.Int); there {
		return n.Value()
	}
	return 0
}

// The host's middleware counts the patterns of the interface's routes, and the host's pages by the
// patterns of its router.
func TestCounted(t *testing.T) {
	pages := map[string]string{"net/http": "GET /whoami", "chi": "/whoami", "echo": "/whoami", "gin": "/whoami"}
	for name, with := range hosts {
		t.Run(name, func(t *testing.T) {
			host := with(httpapi.New(newService(t, memstore.New()), httpapi.Options{}))
			for _, route := range httpapi.Routes() {
				pattern := route.Method + " /ext/svc" + route.Path
				before := count(pattern)
				host.ServeHTTP(httptest.NewRecorder(), request(here, route, bearer))
				host.ServeHTTP(httptest.NewRecorder(), request(here, route, "")) // is no use of the route
				if have := count(pattern) - before; have != 1 {
					t.Errorf("%s: counted %d times", pattern, have)
				}
			}
			before := count(pages[name])
			host.ServeHTTP(httptest.NewRecorder(), request("", httpapi.Route{Method: "GET", Path: "/whoami"}, bearer))
			if have := count(pages[name]) - before; have != 1 {
				t.Errorf("the host's own page: counted %d times", have)
			}
		})
	}
	served.Do(func(kv expvar.KeyValue) {
		if strings.Contains(kv.Key, "secret") {
			t.Errorf("a path was counted: %s", kv.Key)
		}
	})
}

// A middleware that gets a copy of the request can ask for the pattern, before or after the request.
func TestPattern(t *testing.T) {
	for _, m := range mounts {
		t.Run(m.name, func(t *testing.T) {
			api := httpapi.New(newService(t, memstore.New()), httpapi.Options{Prefix: m.prefix})
			host := m.serve(t, api)
			for _, route := range httpapi.Routes() {
				r, want := request(m.path(), route, bearer), ""
				if !m.hidden {
					want = route.Method + " " + m.pattern() + route.Path
				}
				before := api.Pattern(r)
				host.ServeHTTP(httptest.NewRecorder(), r)
				if after := api.Pattern(r); before != want || after != want {
					t.Errorf("%v: before %q, after %q, want %q", route, before, after, want)
				}
			}
		})
	}
}
