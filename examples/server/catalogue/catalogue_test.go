package catalogue_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/server/catalogue"
	"github.com/extsvc/svc/marketplace"
)

func TestEveryEntryIsGood(t *testing.T) {
	is := is.New(t)
	market, err := marketplace.New(marketplace.Config{Files: map[string]fs.FS{"demo": catalogue.Files()}})
	is.NoErr(err)
	from := svc.Upstream{URL: "fs://demo"}
	catalog, err := market.Catalog(t.Context(), from, 0)
	is.NoErr(err)
	is.Equal(len(catalog.Problems), 0)
	is.True(len(catalog.Entries) >= 6)
	inline := 0
	for _, entry := range catalog.Entries {
		content, err := market.Template(t.Context(), from, entry.ID)
		is.NoErr(err)
		var manifest struct{ Version string }
		is.NoErr(json.Unmarshal(content.Manifest, &manifest))
		is.True(manifest.Version != "")
		is.True(content.Description != nil && content.Category != nil)
		is.True(len(content.Tags) > 0 && len(content.Integrations) > 0)
		if entry.ManifestFile == "" {
			inline++
		}
	}
	is.True(inline > 0 && inline < len(catalog.Entries)) // both ways are shown
}

func TestEveryManifestIsNamed(t *testing.T) {
	is := is.New(t)
	files, err := fs.Glob(catalogue.Files(), "manifests/*")
	is.NoErr(err)
	catalog, err := fs.ReadFile(catalogue.Files(), "templates.json")
	is.NoErr(err)
	is.True(len(files) > 0)
	for _, file := range files {
		is.Equal(strings.Count(string(catalog), `"`+file+`"`), 1)
	}
}

func TestHandler(t *testing.T) {
	is := is.New(t)
	get := func(path, etag string) *http.Response {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		r.Header.Set("If-None-Match", etag)
		catalogue.Handler().ServeHTTP(w, r)
		return w.Result()
	}
	answer := get("/templates.json", "")
	is.Equal(answer.StatusCode, 200)
	is.Equal(answer.Header.Get("Content-Type"), "application/json")
	is.Equal(get("/templates.json", answer.Header.Get("ETag")).StatusCode, 304)
	for _, path := range []string{"/", "", "/manifests", "/manifests/", "/nothing", "/../catalogue.go", "/./templates.json"} {
		is.Equal(get(path, "").StatusCode, 404)
	}
}
