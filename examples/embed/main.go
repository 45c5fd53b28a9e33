// Command embed is the smallest host: its own page, and svc under /ext/svc.
package main

import (
	"cmp"
	"context"
	"log"
	"net/http"
	"os"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/sqlite"
)

func main() {
	store, err := sqlite.Open(context.Background(), "host.db", sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	admin := svc.Principal{Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*"}}
	signIn := svc.StaticToken(os.Getenv("ADMIN_TOKEN"), admin) // or your sessions
	service, err := svc.New(svc.Config{Store: store, Authenticator: signIn})
	if err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Options{}).Mount(http.DefaultServeMux) // or your mux
	log.Fatal(httpapi.Server(cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8081"), api).ListenAndServe())
}
