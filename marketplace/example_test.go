package marketplace_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// A host gives its Service a Client. Sources on the web need no configuration. A file system of
// the host can be a source as well.
func Example() {
	house := fstest.MapFS{ // or an embed.FS
		"templates.json": {Data: []byte(`{"templates": [
			{"id": "notes", "name": "Notes", "manifest_file": "notes.json"}]}`)},
		"notes.json": {Data: []byte(`{"version": "1"}`)},
	}
	market, err := marketplace.New(marketplace.Config{Files: map[string]fs.FS{"house": house}})
	if err != nil {
		log.Fatal(err)
	}
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Sources: svc.SourceConfig{Marketplace: market}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	ctx, name := context.Background(), "house"
	source := svc.NewSource{URL: "fs://house", Alias: &name}
	if _, err := service.Sources.Register(ctx, svc.Host, source); err != nil {
		log.Fatal(err)
	}
	notes := svc.Install{TemplateID: "notes", SourceName: name}
	installed, err := service.Templates.Install(ctx, svc.Host, notes)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(installed.Name, string(installed.Manifest))
	// Output:
	// Notes {"version":"1"}
}

// Addresses that are not public need the host's permission. A bad entry does not stop the others.
func ExampleClient_Catalog() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"templates": [
			{"id": "chat", "name": "Chat", "manifest": {"version": "1"}}, {"id": "bad"}]}`)
	}))
	defer server.Close()
	client, err := marketplace.New(marketplace.Config{AllowOrigins: []string{server.URL}})
	if err != nil {
		log.Fatal(err)
	}
	catalog, err := client.Catalog(context.Background(), svc.Upstream{URL: server.URL}, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, entry := range catalog.Entries {
		fmt.Println(entry.ID, entry.Content.Name)
	}
	for _, problem := range catalog.Problems {
		fmt.Println("entry", problem.Index, "is bad:", problem.Reason)
	}
	// Output:
	// chat Chat
	// entry 1 is bad: name is missing
}

// Without that permission, an address inside the host's network is refused.
func ExampleClient_CheckURL() {
	client, err := marketplace.New(marketplace.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, url := range []string{"https://github.com/acme/templates", "https://127.0.0.1/templates"} {
		if err := client.CheckURL(url); err != nil {
			fmt.Println(url, err)
		}
	}
	// Output:
	// https://127.0.0.1/templates is not public, and this server does not allow it
}
