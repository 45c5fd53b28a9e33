// Command transaction is a shop that signs customers up. It writes the customer's row and issues
// the customer's API key in one transaction.
//
//	go run ./examples/transaction ada grace
//	go run ./examples/transaction -db postgres://user@host:5432/database ada grace
//
// The first shop uses SQLite through database/sql, the second one PostgreSQL through pgx.
//
// It prints the keys, reports each event within a second, and runs until it is interrupted. Kill it
// at any moment: no customer is left without a key, and no key without a customer. The next run
// reports the events that are still in the outbox.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/extsvc/svc"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a log without a reader ends no server: the write fails
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db := flag.String("db", "shop.db", "the database: a file, or a URL of PostgreSQL")
	flag.Parse()
	for _, customer := range flag.Args() {
		if strings.HasPrefix(customer, "-") {
			log.Fatal("flags come before the customers: ", customer)
		}
	}
	s, err := openCounter(ctx, *db, svc.Config{
		Events: svc.EventConfig{OnEvent: tell},
		Logger: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.close()
	for _, customer := range flag.Args() {
		if key, err := s.signUp(ctx, customer); err != nil {
			log.Printf("%s is not signed up: %v", customer, err)
		} else {
			fmt.Println(customer, string(key)) // the key is shown only here
		}
	}
	<-ctx.Done()
}

// counter is where customers sign up.
type counter interface {
	signUp(ctx context.Context, customer string) (svc.Secret, error)
	close() error
}

func openCounter(ctx context.Context, db string, config svc.Config) (counter, error) {
	if strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://") {
		return openPgx(ctx, db, config)
	}
	return open(ctx, db, config)
}

// tell gets the event of each issued key at least once. A repeated event has the same ID.
func tell(_ context.Context, event svc.Event) {
	log.Printf("event %s: %s for %s", event.ID, event.Action, event.Target.Holder.ID)
}
