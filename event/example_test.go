package event_test

import (
	"context"
	"fmt"
	"log"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/store/memstore"
)

// A host hears of new users.
func Example() {
	ctx := context.Background()
	service, err := svc.New(svc.Config{
		Store: memstore.New(),
		Events: svc.EventConfig{OnEvent: func(_ context.Context, of svc.Event) {
			if of.Action == event.AccessWritten && of.Target.Kind == event.TargetUser {
				fmt.Println("welcome,", of.Target.ID)
			}
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	if _, err := service.Users.Create(ctx, svc.Host, svc.User{ID: "alice"}); err != nil {
		log.Fatal(err)
	}
	// Output: welcome, alice
}
