// Command mounts runs one host with one of four routers: the mux of net/http, chi, echo or gin. The
// host has its own pages, one of them only for callers that svc knows. Middleware runs in front of
// everything, and the interface is under /ext/svc.
//
//	GOWORK=off go -C examples/mounts run . chi
//
// It is a module outside of go.work: other tests need not compile the routers.
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
	"os/signal"
	"syscall"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

// hosts holds the same host, built with each router.
var hosts = map[string]func(*httpapi.Handler) http.Handler{
	"net/http": withMux, "chi": withChi, "echo": withEcho, "gin": withGin,
}

func main() {
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	with, found := hosts[append(os.Args, "net/http")[1]]
	if !found {
		log.Fatal("which router? net/http, chi, echo or gin")
	}
	// A real host adds peppers and a durable store.
	service := must(svc.New(svc.Config{Store: memstore.New(), Logger: slog.Default()}))
	ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
	issued := must(service.Keys.Issue(context.Background(), svc.Host, ada, svc.NewAPIKey{}))
	address := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8083")
	for _, path := range []string{"/whoami", "/ext/svc/me/api-keys"} {
		fmt.Printf("curl -sS -H 'Authorization: Bearer %s' http://%s%s\n",
			string(issued.Key), address, path)
	}
	api := httpapi.New(service, httpapi.Options{Logger: slog.Default()})
	log.Fatal(httpapi.Server(address, with(api)).ListenAndServe())
}

func home(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "the host's own page\n")
}

// whoami is a page behind Protect.
func whoami(w http.ResponseWriter, r *http.Request) {
	who, _ := httpapi.PrincipalFrom(r.Context())
	fmt.Fprintln(w, who.Kind, who.ID)
}

// served counts answers by the pattern of their route.
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
