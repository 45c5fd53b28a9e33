// Command transaction is a shop that signs customers up: a row of its own and the customer's API key, in one transaction.
//
//	go run ./examples/transaction ada grace
//
// It prints their keys, tells of each within a second, and runs until it is interrupted. Kill it in between: a customer
// without a key, or a key without a customer, is never found, and what was not told is told when it runs again.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/extsvc/svc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := open(ctx, "shop.db", svc.Config{OnEvent: tell, Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	defer s.close()
	for _, customer := range os.Args[1:] {
		if key, err := s.signUp(ctx, customer); err != nil {
			log.Printf("%s is not signed up: %v", customer, err)
		} else {
			fmt.Println(customer, string(key)) // the only time that anybody sees it
		}
	}
	<-ctx.Done()
}

// tell is called at least once for each key that was issued. An event that comes twice has the same ID.
func tell(_ context.Context, event svc.Event) {
	log.Printf("event %s: %s for %s", event.ID, event.Action, event.Target.Holder.ID)
}
