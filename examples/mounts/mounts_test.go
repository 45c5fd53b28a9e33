package main

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/extsvc/svc/httpapi"
)

// mount is one way to mount the interface.
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

// pattern returns the prefix in the patterns of routes.
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
