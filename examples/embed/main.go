// Command embed is the smallest program that embeds svc: the interface over a SQLite file, plus the
// host's own pages.
//
//	ADMIN_TOKEN=correct-horse go run ./examples/embed
//	curl -H 'Authorization: Bearer correct-horse' http://127.0.0.1:8081/ext/svc/admin/templates
package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

func main() {
	store := must(sqlite.Open(context.Background(), "embed.db", sqlite.Options{}))
	market := must(marketplace.New(marketplace.Config{}))
	service := must(svc.New(svc.Config{
		Store:         store,
		Marketplace:   market,
		Authenticator: svc.AuthenticatorFunc(signedIn),
		Logger:        slog.Default(),
	}))
	mux := http.NewServeMux() // the host's own routes
	mux.HandleFunc("GET /{$}", home)
	api := httpapi.New(service, httpapi.Options{Logger: slog.Default()}) // at /ext/svc
	log.Fatal(http.ListenAndServe(cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8081"), api.Ahead(mux)))
}

// signedIn authenticates the host's own bearers. This host has one bearer: its administrator's.
func signedIn(_ context.Context, bearer string) (svc.Principal, error) {
	token := os.Getenv("ADMIN_TOKEN")
	if token == "" || subtle.ConstantTimeCompare([]byte(bearer), []byte(token)) == 0 {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	admin := svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}
	return admin, nil
}

func home(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "the host's own page\n")
}

func must[T any](made T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return made
}
