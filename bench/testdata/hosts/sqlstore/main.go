// The same host, with the interface over SQL. There is no driver: hosts have one.
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
	log.Fatal(http.ListenAndServe(":8080", httpapi.New(service, httpapi.Options{}).Ahead(http.NewServeMux())))
}
