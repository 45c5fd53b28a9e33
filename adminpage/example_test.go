package adminpage_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/adminpage"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

func Example() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	mux := http.NewServeMux()
	api := httpapi.New(service, httpapi.Options{})      // at /ext/svc
	page := adminpage.New(service, adminpage.Options{}) // at /ext/svc-admin
	handler := page.Mount(api.Mount(mux))

	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/ext/svc-admin/", nil))
	fmt.Println(answer.Code)
	// Output: 401
}

// A host with sessions of its own signs its operators in.
func ExampleOptions_bearer() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	page := adminpage.New(service, adminpage.Options{
		Bearer: func(r *http.Request) string {
			cookie, err := r.Cookie("session")
			if err != nil {
				return "" // the page's own sign-in
			}
			return cookie.Value // Config.Authenticator accepts it
		},
	})
	_ = page.Mount(http.NewServeMux())
}

// Several processes serve the same pages to operators behind a proxy. Their secret comes from the host's
// configuration.
func ExampleOptions() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	secret, former := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	origins := http.NewCrossOriginProtection()
	if err := origins.AddTrustedOrigin("https://ops.example.com"); err != nil {
		panic(err)
	}
	page := adminpage.New(service, adminpage.Options{
		Prefix:          "/ops" + adminpage.DefaultPrefix,
		Title:           "Helpdesk",
		Actions:         append([]string{"ticket:read"}, adminpage.DefaultActions...),
		SessionKey:      secret,
		OldSessionKeys:  [][]byte{former}, // until its sign-ins have ended
		SessionLifetime: adminpage.DefaultSessionLifetime / 3,
		Secure:          true,
		CrossOrigin:     origins,
		ReadOnly:        true, // changes are made elsewhere
		Logger:          slog.Default(),
	})
	answer := httptest.NewRecorder()
	page.Mount(http.NotFoundHandler()).ServeHTTP(answer, httptest.NewRequest("GET", "/ops/ext/svc-admin/", nil))
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "Helpdesk"))
	// Output: 401 true
}

// A host with sessions names the person of a session, who needs no key for the pages.
func ExampleOptions_principal() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	page := adminpage.New(service, adminpage.Options{
		Principal: func(r *http.Request) (svc.Principal, error) {
			session, err := r.Cookie("session")
			if err != nil || session.Value != "of-alice" { // look it up
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			return svc.Principal{Kind: svc.KindUser, ID: "alice"}, nil
		},
	})
	r := httptest.NewRequest("GET", "/ext/svc-admin/", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "of-alice"})
	answer := httptest.NewRecorder()
	page.Mount(http.NotFoundHandler()).ServeHTTP(answer, r)
	fmt.Println(answer.Code)
	// Output: 303
}

// Each tenant has its pages. Here its name is that of the host.
func ExampleNewTenants() {
	tenants, err := svc.NewTenants(svc.TenantsConfig{Store: memstore.NewTenants()})
	if err != nil {
		panic(err)
	}
	defer tenants.Close()
	pages := adminpage.NewTenants(tenants, adminpage.Options{
		Tenant: func(r *http.Request) string {
			name, _ := strings.CutSuffix(r.Host, ".example.com")
			return name
		},
	})
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest("GET", "https://acme.example.com/ext/svc-admin/", nil))
	fmt.Println(answer.Code) // the sign-in
	// Output: 401
}
