// Command mounts is one host four times: with the mux of net/http, and with the routers chi, echo and gin. Each has pages of its
// own, one of them for whoever svc knows, middleware in front of everything, and the interface under /ext/svc.
//
//	go run ./examples/mounts chi
package main

import (
	"cmp"
	"context"
	"expvar"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// hosts are the same host with one router or another.
var hosts = map[string]func(*httpapi.Handler) http.Handler{
	"net/http": withMux, "chi": withChi, "echo": withEcho, "gin": withGin,
}

func main() {
	with, found := hosts[append(os.Args, "net/http")[1]]
	if !found {
		log.Fatal("which router? net/http, chi, echo or gin")
	}
	service := must(svc.New(svc.Config{Store: memstore.New(), Logger: slog.Default()})) // add peppers, and a store that stays
	ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
	issued := must(service.Keys.Issue(context.Background(), svc.Host, ada, svc.NewAPIKey{}))
	address := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8083")
	for _, path := range []string{"/whoami", "/ext/svc/me/api-keys"} {
		fmt.Printf("curl -sS -H 'Authorization: Bearer %s' http://%s%s\n", string(issued.Key), address, path)
	}
	log.Fatal(http.ListenAndServe(address, with(httpapi.New(service, httpapi.Options{Logger: slog.Default()}))))
}

func home(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the host's own page\n") }

// whoami is behind Protect.
func whoami(w http.ResponseWriter, r *http.Request) {
	who, _ := httpapi.PrincipalFrom(r.Context())
	fmt.Fprintln(w, who.Kind, who.ID)
}

// served counts answers by the patterns of their routes.
var served = expvar.NewMap("served")

func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		served.Add(r.Pattern, 1)
	})
}

func must[T any](made T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return made
}
