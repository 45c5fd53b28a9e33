package main

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// withTenants serves each tenant's interface under /t/{tenant}/ext/svc.
func withTenants(tenants *svc.Tenants) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", home)
	api := httpapi.NewTenants(tenants, httpapi.Options{Prefix: "/t/{tenant}/ext/svc"})
	return counted(api.Mount(mux))
}
