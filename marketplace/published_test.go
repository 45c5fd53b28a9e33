package marketplace_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/marketplace"
)

// published returns the directory of the published catalogue for agent memory. It is below
// SVC_CATALOGUES, or below shared/catalogues in a parent directory.
func published(t *testing.T) string {
	t.Helper()
	var candidates []string
	if root := os.Getenv("SVC_CATALOGUES"); root != "" {
		candidates = append(candidates, root)
	} else {
		at, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for ; at != filepath.Dir(at); at = filepath.Dir(at) {
			candidates = append(candidates, filepath.Join(at, "shared", "catalogues"))
		}
	}
	for _, candidate := range candidates {
		if _, err := os.Stat(filepath.Join(candidate, "agent-memory", "templates.json")); err == nil {
			return filepath.Join(candidate, "agent-memory")
		}
	}
	if os.Getenv("SVC_REQUIRE_CATALOGUES") != "" || os.Getenv("CI") == "true" {
		t.Fatalf("THE PUBLISHED CATALOGUE IS REQUIRED AND NOT THERE: looked in %q; set SVC_CATALOGUES", candidates)
	}
	t.Skipf("THE PUBLISHED CATALOGUE IS NOT TESTED: looked in %q; set SVC_CATALOGUES", candidates)
	return ""
}

func compact(t *testing.T, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPublishedCatalogue(t *testing.T) {
	dir := published(t)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	client := newClient(t, marketplace.Config{AllowOrigins: []string{server.URL}, Files: map[string]fs.FS{"agent-memory": os.DirFS(dir)}})
	for _, url := range []string{"fs://agent-memory", server.URL} {
		t.Run(url, func(t *testing.T) {
			is := is.New(t)
			catalog, err := client.Catalog(t.Context(), upstream(url), 0)
			is.NoErr(err)
			is.Equal(len(catalog.Entries), 8)
			is.Equal(len(catalog.Problems), 0)
			for _, entry := range catalog.Entries {
				content, err := client.Template(t.Context(), upstream(url), entry.ID)
				is.NoErr(err)
				is.True(entry.ManifestFile != "")
				file, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(entry.ManifestFile)))
				is.NoErr(err)
				is.Equal(string(content.Manifest), compact(t, file))
				_, err = content.Revision()
				is.NoErr(err)
			}
		})
	}
}
