// Command transaction is a shop that signs customers up. It writes the customer's row and issues
// the customer's API key in one transaction.
//
//	go run ./examples/transaction ada grace
//
// It prints the keys, reports each event within a second, and runs until it is interrupted. Kill it
// at any moment: no customer is left without a key, and no key without a customer. The next run
// reports the events that are still in the outbox.
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
			fmt.Println(customer, string(key)) // the key is shown only here
		}
	}
	<-ctx.Done()
}

// tell gets the event of each issued key at least once. A repeated event has the same ID.
func tell(_ context.Context, event svc.Event) {
	log.Printf("event %s: %s for %s", event.ID, event.Action, event.Target.Holder.ID)
}
