package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
)

func Example() {
	ctx, url, token := context.Background(), exampleServer(), svc.Secret("correct-horse")

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

// exampleServer runs a server with an administrator whose token is correct-horse.
func exampleServer() (url string) {
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Logger: slog.New(slog.DiscardHandler),
		Authenticator: svc.AuthenticatorFunc(func(_ context.Context, bearer string) (svc.Principal, error) {
			if bearer != "correct-horse" {
				return svc.Principal{}, svc.ErrUnauthenticated
			}
			return admin, nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	return httptest.NewServer(httpapi.New(service, httpapi.Options{}).Mount(http.NotFoundHandler())).URL
}
