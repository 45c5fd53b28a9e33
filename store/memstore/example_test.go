package memstore_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// A host that starts: the data ends with the process. A database comes later, in one line.
func Example() {
	service, err := svc.New(svc.Config{
		Store:  memstore.New(), // later: sqlite.Open or postgres.Open
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	err = service.Ping(context.Background())
	fmt.Println(err)
	// Output:
	// <nil>
}
