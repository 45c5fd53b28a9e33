package main

import (
	"net/http"

	"github.com/extsvc/svc/httpapi"
)

func withMux(api *httpapi.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", home)
	mux.Handle("GET /whoami", api.Protect(http.HandlerFunc(whoami)))
	return counted(api.Mount(mux))
}
