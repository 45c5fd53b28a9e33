package main_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// newService returns a service that accepts the bearer "s-olivia".
func newService() *svc.Service {
	service, err := svc.New(svc.Config{
		Store:         memstore.New(),
		Authenticator: svc.AuthenticatorFunc(sessions{"s-olivia": {"olivia", []string{"owner"}}}.authenticate),
		Keys:          svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("from the host's vault")}}},
	})
	if err != nil {
		panic(err)
	}
	return service
}

// A host mounts the interface in its mux like any handler, under a path of its choice. The mux
// redirects paths with "//" or ".." before it looks for a handler, even without a bearer.
func Example_stripPrefix() {
	api := httpapi.New(newService(), httpapi.Options{})
	mux := http.NewServeMux()
	mux.Handle("/platform/memory/", http.StripPrefix("/platform/memory", api))
	fmt.Println(ask(mux, "s-olivia", "/platform/memory/admin/templates"))
	fmt.Println(ask(mux, "", "/platform/memory/admin/templates"))
	fmt.Println(ask(mux, "", "/platform/memory//admin/templates")) // by the mux
	// Output:
	// 200
	// 401
	// 307
}

// Mount puts the interface in front of the mux: it sees every request under its prefix first,
// whatever the path looks like. No request gets an answer before authentication.
func Example_ahead() {
	api := httpapi.New(newService(), httpapi.Options{Prefix: "/platform/memory"})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	all := api.Mount(mux)
	fmt.Println(ask(all, "s-olivia", "/platform/memory/admin/templates"))
	fmt.Println(ask(all, "", "/platform/memory//admin/templates"))
	fmt.Println(ask(all, "", "/health"))
	// Output:
	// 200
	// 401
	// 204
}

// The host's own code needs no bearer and no HTTP: it passes svc.Host.
func Example_host() {
	ctx, service := context.Background(), newService()
	laptop := "olivia's laptop"
	issued, err := service.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "olivia"}, svc.NewAPIKey{Description: &laptop})
	if err != nil {
		panic(err)
	}
	who, err := service.Authenticate(ctx, string(issued.Key))
	fmt.Println(who.Kind, who.ID, err)
	fmt.Println(issued.Key) // does not show itself
	// Output:
	// user olivia <nil>
	// ***
}
