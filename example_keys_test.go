package svc_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/extsvc/svc"
)

// The caller sees a key once, when it is issued. Afterwards, lists show its prefix alone.
func ExampleKeys_Issue() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	alice, laptop := svc.Identity{Kind: svc.KindUser, ID: "alice"}, "alice's laptop"
	issued, err := service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{Description: &laptop})
	if err != nil {
		log.Fatal(err)
	}
	key := string(issued.Key) // hand it over: printed as a Secret it is ***
	fmt.Println(issued.Key, len(key))

	who, err := service.Authenticate(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(who.Kind, who.ID)
	for listed, err := range service.Keys.List(ctx, svc.Host, alice, svc.KeyQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(*listed.Description, key[:len(listed.Prefix)] == listed.Prefix)
	}
	// Output:
	// *** 59
	// user alice
	// alice's laptop true
}

// A rotated key stays accepted for a while, so that its programs can change to the new one.
func ExampleKeys_Rotate() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	old, err := service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})
	if err != nil {
		log.Fatal(err)
	}
	successor, err := service.Keys.Rotate(ctx, svc.Host, alice, old.ID, svc.Rotation{Overlap: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	for key, err := range service.Keys.List(ctx, svc.Host, alice, svc.KeyQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		if key.ID == old.ID {
			fmt.Println("the old key ends", key.ExpiresAt)
		}
	}
	who, err := service.Authenticate(ctx, string(successor.Key))
	fmt.Println(who.ID, err)
	// Output:
	// the old key ends 2026-11-22 09:00:00 +0000 UTC
	// alice <nil>
}

// A revocation counts at once.
func ExampleKeys_Revoke() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	issued, err := service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Keys.Revoke(ctx, svc.Host, alice, issued.ID); err != nil {
		log.Fatal(err)
	}
	_, err = service.Authenticate(ctx, string(issued.Key))
	fmt.Println(svc.ErrorCode(err))
	// Output:
	// unauthenticated
}

// Expired keys stay in the lists until they are swept. With IgnoreExpired they make room for new ones.
func ExampleKeys_Sweep() {
	now := time.Unix(1_800_000_000, 0)
	service := exampleService(func(c *svc.Config) {
		c.Now = func() time.Time { return now }
		c.Keys.MaxPerHolder, c.Keys.IgnoreExpired = 1, true
	})
	defer service.Close()
	ctx, alice := context.Background(), svc.Identity{Kind: svc.KindUser, ID: "alice"}
	soon := now.Add(time.Hour)
	for range 2 {
		if _, err := service.Keys.Issue(ctx, svc.Host, alice, svc.NewAPIKey{ExpiresAt: soon}); err != nil {
			fmt.Println(err)
		}
		now, soon = soon, soon.Add(time.Hour)
	}
	now = soon
	fmt.Println(service.Keys.Sweep(ctx, svc.Host, now))
	// Output: 2 <nil>
}
