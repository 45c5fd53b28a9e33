package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

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
	is := is.New(t)
	service := newService(t, memstore.New())
	bundle := must(svc.ParseBundle([]byte(`{"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["bank:recall"], "banks": ["diary"]}]}}], "users": [{"id": "admin"}],
		"attachments": [{"policy_id": "p", "principal_type": "user", "principal_id": "admin"}]}`)))
	is.NoErr(service.Access.Apply(t.Context(), svc.Host, bundle))
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
