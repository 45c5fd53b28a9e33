package main

import (
	"expvar"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

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

// A middleware that gets a copy of the request can ask for the pattern, before or after the
// request.
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
