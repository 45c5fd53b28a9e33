package main

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/extsvc/svc/httpapi"
)

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
