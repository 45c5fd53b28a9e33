package main

import (
	"net/http"

	"github.com/extsvc/svc/httpapi"
)

// withTenants serves each tenant's interface under /t/{tenant}/ext/svc. Each tenant has its own
// Service and handler; all handlers have this path as Prefix.
func withTenants(apis map[string]*httpapi.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", home)
	mux.HandleFunc("/t/{tenant}/ext/svc/", func(w http.ResponseWriter, r *http.Request) {
		api, found := apis[r.PathValue("tenant")]
		if !found {
			http.NotFound(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
	return counted(mux)
}
