package main_test

import (
	"context"
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/memstore"
)

// A file system can be a source: a directory of the host, or one embedded in its binary.
func Example_files() {
	house := fstest.MapFS{
		"templates.json": {Data: []byte(`{"templates": [{"id": "notes", "name": "Notes", "manifest_file": "m/notes.json"}]}`)},
		"m/notes.json":   {Data: []byte(`{"version": "1.0.0", "recall": {"weight": 0.35}}`)},
	}
	market, err := marketplace.New(marketplace.Config{Files: map[string]fs.FS{"house": house}})
	if err != nil {
		panic(err)
	}
	service, err := svc.New(svc.Config{
		Store: memstore.New(), Marketplace: market,
		Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("from the host's vault")}}},
	})
	if err != nil {
		panic(err)
	}
	ctx, name := context.Background(), "house"
	if _, err := service.Sources.Register(ctx, svc.Host, svc.NewSource{URL: "fs://house", Alias: &name}); err != nil {
		panic(err)
	}
	template, err := service.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "notes", SourceName: name})
	fmt.Println(template.ID, string(template.Manifest), err)
	// Output: notes {"version":"1.0.0","recall":{"weight":0.35}} <nil>
}
