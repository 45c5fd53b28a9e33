package main

import (
	"net/http"

	"github.com/extsvc/svc/httpapi"
	"github.com/labstack/echo/v5"
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
