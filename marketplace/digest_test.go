package marketplace_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/marketplace"
)

func digest(canonical string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(canonical)))
}

func withDigest(digest string) string {
	return fmt.Sprintf(`{"templates":[{"id":"a","name":"A","manifest_file":"m.json","manifest_digest":%q}]}`, digest)
}

// The client asks once for a manifest with a manifest_digest, also across restarts.
func TestManifestDigest(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	from.Memory = &memory{}
	s.tagged("/m.json", "{ \"version\": \"1\",\n \"a\": 1.0 }")
	s.tagged("/templates.json", withDigest(digest(`{"a":1,"version":"1"}`)))
	want := `{"version":"1","a":1.0}`
	is.Equal(version(t, client, from), want)
	is.Equal(len(s.requests()), 2)
	for _, client := range []*marketplace.Client{client, newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}})} {
		is.Equal(version(t, client, from), want)
		is.Equal(len(s.requests()), 1)
	}
	catalog, err := client.Catalog(t.Context(), from, 0)
	is.NoErr(err)
	is.Equal(string(catalog.Entries[0].Content.Manifest), want) // known, however old

	s.tagged("/m.json", `{"version":"2","b":0}`)
	_, err = newClient(t, marketplace.Config{AllowOrigins: []string{from.URL}}).Manifest(t.Context(), upstream(from.URL), catalog.Entries[0])
	wantError(t, err, svc.CodeSourceFailed, "entry 0 of the catalogue is bad: its manifest_file does not match the manifest_digest of the catalogue")
	s.tagged("/templates.json", withDigest(digest(`{"b":0,"version":"2"}`)))
	is.Equal(version(t, client, from), `{"version":"2","b":0}`)
}

func TestBadDigests(t *testing.T) {
	is := is.New(t)
	for text, says := range map[string]string{
		`"manifest":{"version":"1"},"manifest_digest":"` + digest(`{"version":"1"}`) + `"`: "",
		`"manifest":{"version":"1"},"manifest_digest":null`:                                "",
		`"manifest":{"version":"1"},"manifest_digest":"` + digest(`{"version":"2"}`) + `"`: "manifest_digest does not match the manifest",
		`"manifest_file":"m.json","manifest_digest":"sha256:12"`:                           `manifest_digest must be "sha256:" and 64 of 0-9 and a-f`,
		`"manifest_file":"m.json","manifest_digest":7`:                                     "manifest_digest must be a string",
		`"manifest_file":"m.json","manifest_digest":""`:                                    "manifest_digest must not be empty",
	} {
		catalog, err := marketplace.ParseCatalog([]byte(`{"templates":[{"id":"a","name":"A",` + text + `}]}`))
		is.NoErr(err)
		problem := ""
		for _, p := range catalog.Problems {
			problem = p.Reason
		}
		is.Equal(problem, says)
	}
}

// The client asks for a manifest only at its own address.
func TestManifest(t *testing.T) {
	is := is.New(t)
	s, client, from := newShelf(t, marketplace.Config{})
	catalog, err := client.Catalog(t.Context(), from, 0)
	is.NoErr(err)
	s.requests()
	manifest, err := client.Manifest(t.Context(), from, catalog.Entries[0])
	is.NoErr(err)
	is.Equal(string(manifest), `{"version":"1"}`)
	is.Equal(len(s.requests()), 1)
	for _, path := range []string{"../m.json", "/m.json", "%2e%2e/m.json", "https://h/m.json"} {
		_, err := client.Manifest(t.Context(), from, svc.CatalogEntry{ID: "a", ManifestFile: path})
		wantError(t, err, svc.CodeSourceFailed, "its manifest_file must")
	}
	is.Equal(len(s.requests()), 0)
	inline, err := client.Manifest(t.Context(), from, svc.CatalogEntry{Content: svc.Content{Manifest: []byte(`{}`)}})
	is.NoErr(err)
	is.Equal(string(inline), `{}`)
	_, err = client.Manifest(t.Context(), upstream("http://127.0.0.1:1"), catalog.Entries[0])
	wantError(t, err, svc.CodeSourceFailed, "its address")
}

// The revision of a catalogue depends on its content, not on its formatting.
func TestCatalogRevision(t *testing.T) {
	is := is.New(t)
	revision := func(text string) string {
		catalog, err := marketplace.ParseCatalog([]byte(text))
		is.NoErr(err)
		return catalog.Revision
	}
	is.Equal(revision(fileEntry), revision(" "+fileEntry+"\n"))
	is.True(revision(fileEntry) != revision(oneEntry))
	is.True(len(revision(`{"templates":[]}`)) == len("sha256:")+64)
}
