package main

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/extsvc/svc/httpapi"
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

// By default gin redirects, before any middleware, to a page whose path differs from the
// interface's only by a slash.
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
