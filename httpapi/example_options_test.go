package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// A host that owns identity serves keys and templates alone, behind a proxy that cuts "/memory" off.
func ExampleOptions() {
	service, key := exampleService()
	defer service.Close()
	api := httpapi.New(service, httpapi.Options{
		Prefix:     "/api/svc",
		PublicURL:  "https://example.com/memory/api/svc",
		HideAccess: true,
		MaxBody:    4 * httpapi.DefaultMaxBody,
		Logger:     slog.New(slog.DiscardHandler),
		Limit: func(_ *http.Request, by svc.Principal) time.Duration {
			if by.ID == "mallory" {
				return time.Minute
			}
			return 0
		},
		KeyRate: func(_ *http.Request, keyID string, rate svc.Rate) (httpapi.Allowance, error) {
			return httpapi.Allowance{}, errors.New("the shared counter is down") // then this process counts
		},
	})
	server := httptest.NewServer(api.Mount(http.NotFoundHandler()))
	defer server.Close()
	fmt.Println(exampleGet(server.URL+"/api/svc/me", key)[:3])
	fmt.Println(exampleGet(server.URL+"/api/svc/me/api-keys", key)[:3])
	document := exampleGet(server.URL+"/api/svc/openapi.json", "")
	fmt.Println(strings.Contains(document, `"url":"https://example.com/memory/api/svc"`))
	// Output:
	// 404
	// 200
	// true
}

// Signed-in people use the interface from the host's pages, without a key. Programs send theirs in a header
// of the host.
func ExampleOptions_session() {
	service, key := exampleService()
	defer service.Close()
	origins := http.NewCrossOriginProtection()
	if err := origins.AddTrustedOrigin("https://app.example.com"); err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Options{
		CrossOrigin: origins,
		Principal: func(r *http.Request) (svc.Principal, error) {
			session, err := r.Cookie("session")
			if err != nil || session.Value != "of-alice" { // look it up
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			return svc.Principal{Kind: svc.KindUser, ID: "alice"}, nil
		},
		Bearer: func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
	})
	handler := api.Mount(http.NotFoundHandler())
	ask := func(header, value string) {
		r := httptest.NewRequest("GET", "/ext/svc/me", nil)
		r.Header.Set(header, value)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		fmt.Println(answer.Code)
	}
	ask("Cookie", "session=of-alice")
	ask("Cookie", "session=old")
	ask("X-Api-Key", string(key))
	// Output:
	// 200
	// 401
	// 200
}

// Each customer of the host is a tenant, with rows that no other sees. Here its name is that of the host.
func ExampleNewTenants() {
	ctx := context.Background()
	tenants, err := svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants()})
	if err != nil {
		log.Fatal(err)
	}
	defer tenants.Close()
	if _, err := tenants.Create(ctx, "acme"); err != nil {
		log.Fatal(err)
	}
	api := httpapi.NewTenants(tenants, httpapi.Options{
		Tenant: func(r *http.Request) string {
			name, _ := strings.CutSuffix(r.Host, ".example.com")
			return name
		},
		TenantRate:  100, // while others are busy
		HideOpenAPI: true,
	})
	for _, host := range []string{"acme.example.com", "other.example.com"} {
		r := httptest.NewRequest("GET", "https://"+host+"/ext/svc/me", nil)
		r.Header.Set("Authorization", "Bearer wrong")
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		fmt.Println(host, answer.Code)
	}
	// Output:
	// acme.example.com 401
	// other.example.com 404
}

// A Server has all four timeouts. A host changes them before it starts the server.
func ExampleServer() {
	service, _ := exampleService()
	api := httpapi.New(service, httpapi.Options{})
	server := httpapi.Server("127.0.0.1:8081", api.Mount(http.DefaultServeMux))
	server.WriteTimeout = 2 * time.Minute // for slow exports
	log.Fatal(server.ListenAndServe())
}

// A gateway in front of the interface takes its routes, and names them in its metrics.
func ExampleRoutes() {
	service, _ := exampleService()
	defer service.Close()
	api := httpapi.New(service, httpapi.Options{})
	for _, route := range httpapi.Routes() {
		if strings.HasPrefix(route.Path, "/me/templates/{") && route.Method == "GET" {
			fmt.Println(httpapi.DefaultPrefix + route.Path)
		}
	}
	fmt.Println(api.Pattern(httptest.NewRequest("GET", "/ext/svc/me/templates/notes", nil)))
	// Output:
	// /ext/svc/me/templates/{template_id}
	// /ext/svc/me/templates/{template_id}/check-update
	// /ext/svc/me/templates/{template_id}/diff
	// /ext/svc/me/templates/{template_id}/history
	// GET /ext/svc/me/templates/{template_id}
}

// The documents generate clients of other languages.
func ExampleOpenAPI() {
	for _, document := range [][]byte{httpapi.OpenAPI("/ext/svc"), httpapi.OpenAPI30("/ext/svc")} {
		var of struct{ OpenAPI string }
		if err := json.Unmarshal(document, &of); err != nil {
			log.Fatal(err)
		}
		fmt.Println(of.OpenAPI)
	}
	// Output:
	// 3.1.1
	// 3.0.3
}

// A handler of the host that calls the Service answers as the interface does.
func ExampleStatus() {
	service, _ := exampleService()
	defer service.Close()
	_, err := service.Templates.Read(context.Background(), svc.Host, "none")
	fmt.Println(httpapi.Status(err), httpapi.Status(errors.New("of the host")))
	// Output: 404 500
}
