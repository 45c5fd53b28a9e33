package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

var byGin = early{outside: "404", bare: "404", method: "404", escaped: "404"}

var ginMounts = []mount{
	{name: "gin", host: withGin},
	{name: "gin, beside a route of all paths", host: onGin(func(r *gin.Engine, api *httpapi.Handler) {
		r.Use(ginMount(api))
		r.NoRoute(gin.WrapF(home))
		r.Any("/:any/*path", gin.WrapF(home))
	})},
	{name: "gin, NoRoute", host: onGin(func(r *gin.Engine, api *httpapi.Handler) {
		r.NoRoute(gin.WrapH(api.Mount(http.NotFoundHandler())))
	})},
	{name: "gin, Any", early: byGin, host: anyOfGin(func(*gin.Engine) {})},
	{name: "gin, Any, UseRawPath", early: byGin, host: anyOfGin(func(r *gin.Engine) { r.UseRawPath = true })},
	{name: "gin, Any, UseEscapedPath", early: byGin, host: anyOfGin(func(r *gin.Engine) { r.UseEscapedPath = true })},
	{name: "gin, Any, all that cleans", early: early{inside: "200 404", bare: "301 307", method: "404"}, host: anyOfGin(func(r *gin.Engine) {
		r.RedirectTrailingSlash, r.RedirectFixedPath, r.RemoveExtraSlash = true, true, true
	})},
	{name: "gin, Group", early: byGin, host: onGin(func(r *gin.Engine, api *httpapi.Handler) {
		r.Group("/ext").Any("/svc/*path", gin.WrapH(api))
	})},
	{name: "gin, a tenant", base: "/t/acme/ext/svc", prefix: "/t/{tenant}/ext/svc", early: byGin,
		host: onGin(func(r *gin.Engine, api *httpapi.Handler) { r.Any("/t/:tenant/ext/svc/*path", gin.WrapH(api)) })},
}

func onGin(mount func(*gin.Engine, *httpapi.Handler)) func(*httpapi.Handler) http.Handler {
	return func(api *httpapi.Handler) http.Handler {
		r := gin.New()
		r.RedirectTrailingSlash = false
		r.GET("/", gin.WrapF(home))
		mount(r, api)
		return r
	}
}

// anyOfGin is a route of an engine with other settings.
func anyOfGin(set func(*gin.Engine)) func(*httpapi.Handler) http.Handler {
	return onGin(func(r *gin.Engine, api *httpapi.Handler) {
		set(r)
		r.Any("/ext/svc/*path", gin.WrapH(api))
	})
}

// By default gin redirects, before any middleware, to a page whose path differs from the interface's only by a slash.
func TestGinRedirects(t *testing.T) {
	for redirects, want := range map[bool]int{true: 301, false: 401} {
		s := newSite(t, mount{host: onGin(func(r *gin.Engine, api *httpapi.Handler) {
			r.RedirectTrailingSlash = redirects
			r.Use(ginMount(api))
			r.GET("/ext/:page/", gin.WrapF(home))
		})})
		if status := s.ask("GET", here, "", "").status; status != want {
			t.Errorf("redirecting %v: answered %d", redirects, status)
		}
	}
}

// When gin's Recovery comes first, half a list looks complete.
func TestGinRecovery(t *testing.T) {
	got := half(t, mount{host: onGin(func(r *gin.Engine, api *httpapi.Handler) { r.Use(gin.Recovery(), ginMount(api)) })})
	if got.status != 200 || got.cut {
		t.Errorf("it does not any more, and may stand anywhere: answered %v", got)
	}
}

var byChi = early{outside: "404", method: "405", escaped: "404"}

var chiMounts = []mount{
	{name: "chi", host: withChi},
	{name: "chi, Mount", early: byChi, host: onChi(func(r chi.Router, api http.Handler) { r.Mount("/ext/svc", api) })},
	{name: "chi, Mount of a stripped one", early: byChi, host: onChi(func(r chi.Router, api http.Handler) {
		r.Mount("/ext/svc", http.StripPrefix("/ext/svc", api))
	})},
	{name: "chi, Handle", early: early{outside: "404", bare: "404", method: "405", escaped: "404"},
		host: onChi(func(r chi.Router, api http.Handler) { r.Handle("/ext/svc/*", api) })},
	{name: "chi, Route", early: byChi, host: onChi(func(r chi.Router, api http.Handler) {
		r.Route("/ext", func(r chi.Router) { r.Mount("/svc", api) })
	})},
	{name: "chi, a tenant", base: "/t/acme/ext/svc", prefix: "/t/{tenant}/ext/svc", early: byChi,
		host: onChi(func(r chi.Router, api http.Handler) { r.Mount("/t/{tenant}/ext/svc", api) })},
}

// onChi is a router with a page of its own.
func onChi(mount func(chi.Router, http.Handler)) func(*httpapi.Handler) http.Handler {
	return func(api *httpapi.Handler) http.Handler {
		r := chi.NewRouter()
		r.Get("/", home)
		mount(r, api)
		return r
	}
}

var byEcho = early{outside: "404", bare: "404", escaped: "404"}

var echoMounts = []mount{
	{name: "echo", host: withEcho},
	{name: "echo, Any", early: byEcho, host: onEcho(echo.RouterConfig{}, anyOfEcho)},
	{name: "echo, Any, by the unescaped path", early: byEcho,
		host: onEcho(echo.RouterConfig{UseEscapedPathForMatching: true, UnescapePathParamValues: true}, anyOfEcho)},
	{name: "echo, Any, stripped", early: byEcho, host: onEcho(echo.RouterConfig{}, func(e *echo.Echo, api http.Handler) {
		anyOfEcho(e, http.StripPrefix("/ext/svc", api))
	})},
	{name: "echo, Group", early: byEcho, host: onEcho(echo.RouterConfig{}, func(e *echo.Echo, api http.Handler) {
		e.Group("/ext").Any("/svc/*", echo.WrapHandler(api))
	})},
	{name: "echo, a tenant", base: "/t/acme/ext/svc", prefix: "/t/{tenant}/ext/svc", early: byEcho,
		host: onEcho(echo.RouterConfig{}, func(e *echo.Echo, api http.Handler) { e.Any("/t/:tenant/ext/svc/*", echo.WrapHandler(api)) })},
}

func anyOfEcho(e *echo.Echo, api http.Handler) { e.Any("/ext/svc/*", echo.WrapHandler(api)) }

func onEcho(config echo.RouterConfig, mount func(*echo.Echo, http.Handler)) func(*httpapi.Handler) http.Handler {
	return func(api *httpapi.Handler) http.Handler {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(config)})
		e.GET("/", echo.WrapHandler(http.HandlerFunc(home)))
		mount(e, api)
		return e
	}
}

// A caller without the right to recall is refused: a denial returns an error, not nil.
func TestRecallWithEcho(t *testing.T) {
	service := newService(t, memstore.New())
	bundle := must(svc.ParseBundle([]byte(`{"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["bank:recall"], "banks": ["diary"]}]}}], "users": [{"id": "admin"}],
		"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "admin"}]}`)))
	is.New(t).NoErr(service.Access.Apply(t.Context(), svc.Host, bundle))
	api, e := httpapi.New(service, httpapi.Options{}), echo.New()
	e.GET("/recall/:bank", recall(service), echo.WrapMiddleware(api.Protect))
	for path, want := range map[string]int{"/recall/diary": 200, "/recall/other": 403, "/recall/%00": 503} {
		for with, status := range map[string]int{bearer: want, "": 401, "wrong": 401} {
			r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
			r.Header.Set("Authorization", "Bearer "+with)
			e.ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("%s by %q: %d, want %d", path, with, w.Code, status)
			}
		}
	}
}
