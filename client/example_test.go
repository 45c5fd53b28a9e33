package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing/fstest"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

func Example() {
	ctx, url, token := context.Background(), exampleServer(fstest.MapFS{}), svc.Secret("correct-horse")

	c, err := client.New(client.Config{BaseURL: url + "/ext/svc", Token: token})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Templates.Create(ctx, svc.NewTemplate{ID: "notes", Content: svc.Content{
		Name: "Notes", Tags: []string{"work"}, Manifest: []byte(`{"version": "1"}`),
	}})
	if err != nil {
		log.Fatal(err)
	}
	for template, err := range c.Templates.List(ctx, svc.TemplateQuery{Tag: "work"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(template.ID, string(template.Manifest))
	}
	issued, err := c.Keys.Issue(ctx, svc.Identity{Kind: svc.KindUser, ID: "alice"}, svc.NewAPIKey{})
	if err != nil {
		log.Fatal(err)
	}
	err = c.As(issued.Key).Templates.Delete(ctx, "notes") // as alice, who may not
	fmt.Println(svc.ErrorCode(err))
	if status, ok := errors.AsType[*client.StatusError](err); ok {
		fmt.Println(status.Route, status.Status, status.RequestID != "")
	}
	// Output:
	// notes {"version":"1"}
	// forbidden
	// DELETE /admin/templates/{template_id} 403 true
}

// A job has its own connections, and gives a slow server less time.
func ExampleConfig() {
	c, err := client.New(client.Config{
		BaseURL:    exampleServer(fstest.MapFS{}) + "/ext/svc",
		Token:      "correct-horse",
		UserAgent:  "nightly-report/1.0",
		Timeout:    client.DefaultTimeout / 4,
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConns: 1}},
	})
	check(err)
	rows, err := c.Access.Export(context.Background())
	check(err)
	fmt.Println(len(rows.Users), "users")
	// Output: 0 users
}

// A StatusError tells an answer of the interface from one of a proxy.
func ExampleStatusError() {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "down for maintenance")
	}))
	defer proxy.Close()
	c, err := client.New(client.Config{BaseURL: proxy.URL, Token: "correct-horse"})
	check(err)
	_, err = c.Users.Read(context.Background(), "alice")
	if answer, ok := errors.AsType[*client.StatusError](err); ok && !answer.Problem {
		fmt.Println(answer.Status, answer.Excerpt, "again in", answer.RetryAfter)
	}
	// Output: 503 "down for maintenance" again in 1m0s
}

// A service rotates its key without a pause, and an administrator finds keys that nobody uses.
func ExampleKeys() {
	ctx, c := context.Background(), exampleClient()
	alice := svc.Identity{Kind: svc.KindUser, ID: "alice"}
	issued, err := c.Keys.Issue(ctx, alice, svc.NewAPIKey{Description: new("report")})
	check(err)
	next, err := c.Keys.Rotate(ctx, alice, issued.ID, svc.Rotation{Overlap: time.Hour})
	check(err)
	_, err = c.Keys.Patch(ctx, alice, next.ID, svc.APIKeyPatch{Disabled: new(true)})
	check(err)
	for _, key := range []svc.Secret{issued.Key, next.Key} {
		about, err := c.Keys.Introspect(ctx, string(key)) // what a gateway asks
		check(err)
		fmt.Println("accepted:", about.Active)
	}
	for key, err := range c.Keys.List(ctx, svc.AllHolders, svc.KeyQuery{UnusedSince: time.Now().Add(time.Hour)}) {
		check(err)
		fmt.Println(key.Holder.ID, *key.Description, "disabled:", key.Disabled)
	}
	check(c.Keys.Revoke(ctx, alice, issued.ID))
	check(c.Keys.RevokeAll(ctx, alice)) // alice leaves
	expired, err := c.Keys.Sweep(ctx, time.Time{})
	check(err)
	fmt.Println(expired, "expired keys")
	// Output:
	// accepted: true
	// accepted: false
	// alice report disabled: false
	// alice report disabled: true
	// 0 expired keys
}

// check ends an example on an error. A program returns it.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// exampleClient returns a client of an administrator.
func exampleClient() *client.Client {
	c, err := client.New(client.Config{BaseURL: exampleServer(fstest.MapFS{}) + "/ext/svc", Token: "correct-horse"})
	check(err)
	return c
}

// exampleServer runs a server with an administrator whose token is correct-horse, and a source of files.
func exampleServer(files fs.FS) (url string) {
	sources, err := marketplace.New(marketplace.Config{Files: map[string]fs.FS{"acme": files}})
	check(err)
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Logger: slog.New(slog.DiscardHandler), Sources: svc.SourceConfig{Marketplace: sources}, Templates: svc.TemplateConfig{Banks: banks{}},
		Events: svc.EventConfig{Keep: true},
		Authenticator: svc.StaticToken("correct-horse", svc.Principal{
			Kind: svc.KindUser, ID: "admin", Actions: []string{"iam:*", "template:*", "bank:*"},
		}),
	})
	check(err)
	return httptest.NewServer(httpapi.New(service, httpapi.Options{}).Mount(http.NotFoundHandler())).URL
}
