// The same host, with the interface over a store in memory.
package main

import (
	"log"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

func main() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		log.Fatal(err)
	}
	handler := httpapi.New(service, httpapi.Options{}).Ahead(http.NewServeMux())
	log.Fatal(http.ListenAndServe(":8080", handler))
}
