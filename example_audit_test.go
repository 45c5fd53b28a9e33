package svc_test

import (
	"context"
	"fmt"
	"log"

	"github.com/extsvc/svc"
)

// With Config.Events.Keep, each event has a record in the transaction of its mutation.
func ExampleAudit_Records() {
	ctx := context.Background()
	service := exampleService(func(c *svc.Config) { c.Events.Keep = true })
	defer service.Close()
	by := svc.Host.As("directory sync")
	if _, err := service.Users.Create(ctx, by, svc.User{ID: "alice"}); err != nil {
		log.Fatal(err)
	}
	if err := service.Users.Delete(ctx, by, "alice"); err != nil {
		log.Fatal(err)
	}
	for record, err := range service.Audit.Records(ctx, svc.Host, svc.AuditQuery{TargetID: "alice"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.Number, record.Action, record.Target.ID, "by", record.Actor.ID)
	}
	// Output:
	// 2 access.removed alice by directory sync
	// 1 access.written alice by directory sync
}

// Verify checks the chain of records. A host keeps the newest mark in a place that writers of the
// database cannot change.
func ExampleAudit_Verify() {
	ctx := context.Background()
	service := exampleService(func(c *svc.Config) { c.Events.Keep = true })
	defer service.Close()
	if _, err := service.Users.Create(ctx, svc.Host, svc.User{ID: "alice"}); err != nil {
		log.Fatal(err)
	}
	var earlier svc.AuditPosition // the Newest of the check before; zero at first
	check, err := service.Audit.Verify(ctx, svc.Host, earlier)
	if err != nil {
		log.Fatal(err)
	}
	if check.Fault != nil {
		log.Fatalf("record %d %s", check.Fault.Number, check.Fault.Reason)
	}
	fmt.Println("good up to record", check.Newest.Number)
	// Output:
	// good up to record 1
}

// OnEvent receives each event after its commit.
func ExampleEvent() {
	service := exampleService(func(c *svc.Config) {
		c.Events.OnEvent = func(_ context.Context, e svc.Event) {
			fmt.Println(e.Time.Format("15:04"), e.Action, e.Target.Kind, e.Target.ID)
			fmt.Println(string(e.Is))
		}
	})
	defer service.Close()
	_, err := service.Users.Create(context.Background(), svc.Host, svc.User{ID: "alice"})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 09:00 access.written user alice
	// {"channels":[],"display_name":"alice","id":"alice"}
}
