// The same host, with the interface over SQL but without a driver: hosts have one.
package main

import (
	"database/sql"
	"log"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/sqlstore"
)

func main() {
	db, err := sql.Open("none", "")
	if err != nil {
		log.Fatal(err)
	}
	service, err := svc.New(svc.Config{Store: sqlstore.New(db, db, sqlstore.Dialect{})})
	if err != nil {
		log.Fatal(err)
	}
	handler := httpapi.New(service, httpapi.Options{}).Ahead(http.NewServeMux())
	log.Fatal(http.ListenAndServe(":8080", handler))
}
