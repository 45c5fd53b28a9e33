package main

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/extsvc/svc/httpapi"
)

func withChi(api *httpapi.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Logger, middleware.Recoverer, counted, api.Mount)
	r.Get("/", home)
	r.With(api.Protect).Get("/whoami", whoami)
	return r
}
