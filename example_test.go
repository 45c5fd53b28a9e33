package svc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"testing/fstest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// A host makes one Service, authenticates each request and asks for a decision about it.
func Example() {
	ctx := context.Background()
	service, err := svc.New(svc.Config{
		Store:  memstore.New(), // or that of package sqlite or postgres
		Logger: slog.New(slog.DiscardHandler),
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{
			{Version: "1", Secret: []byte("from the host's vault")},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	admin := svc.Attachment{
		PolicyID: svc.PolicyIAMAdmin, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: "olivia"},
	}
	rights := svc.Bundle{Users: []svc.User{{ID: "olivia"}}, Attachments: []svc.Attachment{admin}}
	if err := service.Access.Apply(ctx, svc.Host, rights); err != nil {
		log.Fatal(err)
	}
	olivia := svc.Identity{Kind: svc.KindUser, ID: "olivia"}
	issued, err := service.Keys.Issue(ctx, svc.Host, olivia, svc.NewAPIKey{})
	if err != nil {
		log.Fatal(err)
	}

	who, err := service.Authenticate(ctx, string(issued.Key)) // for each request
	if err != nil {
		log.Fatal(err)
	}
	for _, action := range []string{action.UsersWrite, action.Recall} {
		d, err := service.Decide(ctx, who, action, "*", svc.Context{})
		fmt.Println(who.ID, action, d.Outcome(), err)
	}
	// Output:
	// olivia iam:users:write allow <nil>
	// olivia bank:recall implicit_deny <nil>
}

// The host decides about each request that it serves. An error never means allow.
func ExampleService_Decide() {
	ctx, service := context.Background(), exampleService()
	defer service.Close()
	bundle, err := svc.ParseBundle([]byte(`{
		"users": [{"id": "alice"}],
		"policies": [{"id": "support", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:recall"], "banks": ["tickets::*"],
			 "recall_max_tokens": 2048}]}}],
		"attachments": [{"policy_id": "support", "principal_type": "user", "principal_id": "alice"}]}`))
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Access.Apply(ctx, svc.Host, bundle); err != nil {
		log.Fatal(err)
	}
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"} // from Authenticate
	for _, bank := range []string{"tickets::acme", "payroll"} {
		d, err := service.Decide(ctx, alice, "bank:recall", bank, svc.Context{Provider: "slack"})
		if err != nil {
			log.Fatal(err) // a server answers 503
		}
		if !d.Allowed() {
			fmt.Println("refused:", d.Reason())
			continue
		}
		fmt.Println("recall at most", *d.Parameters().RecallMaxTokens, "tokens")
	}
	// Output:
	// recall at most 2048 tokens
	// refused: denied: no policy of the user allows "bank:recall" on bank "payroll"
}

// An Authenticator accepts the bearers of the host: here, one session. Keys that were issued here need none.
func ExampleAuthenticatorFunc() {
	service := exampleService(func(c *svc.Config) {
		find := func(_ context.Context, bearer string) (svc.Principal, error) {
			if bearer != "session-of-olivia" { // a host looks it up
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			actions := []string{"iam:*", "template:*"} // vouched for, in this request only
			return svc.Principal{Kind: svc.KindUser, ID: "olivia", Actions: actions}, nil
		}
		c.Authenticator = svc.AuthenticatorFunc(find)
	})
	defer service.Close()
	for _, bearer := range []string{"session-of-olivia", "session-of-nobody"} {
		who, err := service.Authenticate(context.Background(), bearer)
		fmt.Printf("%q %v\n", who.ID, err)
	}
	// Output:
	// "olivia" <nil>
	// "" a valid bearer token is required
}

// A host compares codes, and shows Field and Message.
func ExampleErrorCode() {
	service := exampleService()
	defer service.Close()
	_, err := service.Templates.Create(context.Background(), svc.Host, svc.NewTemplate{ID: "a/b"})
	if svc.ErrorCode(err) == svc.CodeInvalid {
		for _, e := range svc.Errors(err) {
			fmt.Println(e.Field, e.Message)
		}
	}
	// Output:
	// /id must hold no slash or backslash
	// /name is required
	// /manifest is required
}

// Errors have their meaning for errors.Is as well: a host need not know the codes.
func ExampleError() {
	status := func(err error) int {
		switch {
		case errors.Is(err, svc.ErrUnauthenticated):
			return 401
		case errors.Is(err, svc.ErrForbidden):
			return 403
		case errors.Is(err, svc.ErrNotFound):
			return 404
		case errors.Is(err, svc.ErrExists), errors.Is(err, svc.ErrChanged):
			return 409
		case errors.Is(err, svc.ErrInvalid):
			return 400
		case errors.Is(err, svc.ErrUnavailable):
			return 503
		}
		return 500
	}
	service := exampleService()
	defer service.Close()
	_, err := service.Templates.Read(context.Background(), svc.Host, "gone")
	fmt.Println(status(err))
	// Output: 404
}

// May is Decide for hosts that need nothing but the answer. OnDecision sees each answer.
func ExampleService_May() {
	ctx := context.Background()
	service := exampleService(func(c *svc.Config) {
		c.Events.OnDecision = func(_ context.Context, e svc.DecisionEvent) {
			fmt.Println(e.Principal.ID, e.Action, e.Bank, e.Allowed())
		}
	})
	defer service.Close()
	alice := svc.Principal{Kind: svc.KindUser, ID: "alice"}
	may, err := service.May(ctx, alice, "bank:recall", "payroll")
	fmt.Println(may, err)
	// Output:
	// alice bank:recall payroll false
	// false <nil>
}

// exampleService returns a Service over a store in memory. Its clock stands still. Its one source,
// fs://files/house, offers the template "notes".
func exampleService(edits ...func(*svc.Config)) *svc.Service {
	catalogue := `{"templates": [
		{"id": "notes", "name": "Notes", "tags": ["work"], "manifest": {"version": "1"}}]}`
	files := fstest.MapFS{"house/templates.json": {Data: []byte(catalogue)}}
	market, err := marketplace.New(marketplace.Config{Files: map[string]fs.FS{"files": files}})
	if err != nil {
		log.Fatal(err)
	}
	config := svc.Config{
		Store:   memstore.New(),
		Sources: svc.SourceConfig{Marketplace: market},
		Logger:  slog.New(slog.DiscardHandler),
		Now:     func() time.Time { return time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) },
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{
			{Version: "1", Secret: []byte("from the host's vault")},
		}},
	}
	for _, edit := range edits {
		edit(&config)
	}
	service, err := svc.New(config)
	if err != nil {
		log.Fatal(err)
	}
	return service
}
