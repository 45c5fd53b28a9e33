package marketplace_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

func quote(s string) string { return string(must(json.Marshal(s))) }

func recorded(paths *[]string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*paths = append(*paths, r.URL.RequestURI())
		next(w, r)
	}
}

func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

func TestCatalogBadAsAWhole(t *testing.T) {
	bad := sections("bad-catalogues.txt")
	bad["nested deeper"] = []string{`{"x":` + nested(67) + `}`, `{"templates":[{"manifest":{"x":` + nested(64) + `}}]}`}
	bad["kkk… is a duplicate key"] = []string{`{"` + strings.Repeat("k", 1000) + `":{"a":1,"a":2}}`}
	for want, bodies := range bad {
		for _, body := range bodies {
			client, from := serve(t, answer(body), marketplace.Limits{Entries: 3})
			refuses(t, client, from, "its catalogue", want)
			expect.Equal(t, body, svc.ErrorCode(errorOf(client.Catalog(t.Context(), from, 0))), svc.CodeSourceFailed)
		}
	}
}

func TestRenames(t *testing.T) {
	is := is.New(t)
	client, from := serve(t, answer(`{"templates":[],"renames":{"a":"b","\u0062":"c","x":"c"}}`), marketplace.Limits{})
	is.Equal(must(client.Catalog(t.Context(), from, 0)).Renames, map[string]string{"a": "b", "b": "c", "x": "c"})
	client, from = serve(t, answer(`{"templates":[],"renames":null}`), marketplace.Limits{})
	is.Equal(len(must(client.Catalog(t.Context(), from, 0)).Renames), 0)
}

func TestCatalogBadEntries(t *testing.T) {
	is := is.New(t)
	const good = `"name":"A","manifest":{}`
	large := strings.NewReplacer("LABELS", strings.Repeat(`"x",`, 100), "LARGE", strings.Repeat("x", 1<<20))
	bad := sections("bad-entries.txt")[""]
	body := `{"templates":[{"id":"first",` + good + `},`
	for _, line := range bad {
		_, entry, _ := strings.Cut(strings.Split(line, " -> ")[0], " ")
		body += large.Replace(entry) + ","
	}
	body += `{"\u0069d":"la\"st\u00e9","name":"A","tags":[],"integrations":["a]","b}\\"],"manifest":{"x":` + nested(63) + `,"y":"` + strings.Repeat("y", 1<<20-139) + `"}}]}`
	client, from := serve(t, answer(body), marketplace.Limits{})

	catalog := must(client.Catalog(t.Context(), from, 0))
	is.Equal(len(catalog.Entries), 2)
	is.Equal(catalog.Entries[0].ID, "first")
	is.Equal(catalog.Entries[1].ID, `la"sté`)
	is.Equal(catalog.Entries[1].Index, len(bad)+1)
	is.Equal(catalog.Entries[1].Content.Integrations, []string{"a]", `b}\`})
	is.Equal(len(catalog.Problems), len(bad))
	for i, line := range bad {
		p, want := catalog.Problems[i], strings.Split(line, " -> ")
		id, _, _ := strings.Cut(want[0], " ")
		expect.Holds(t, p.Index == i+1 && p.ID == strings.Trim(id, "-") && strings.HasPrefix(p.Reason, want[1]), line, p)
	}

	must(client.Template(t.Context(), from, "first"))
	wantError(t, errorOf(client.Template(t.Context(), from, "b4")), svc.CodeSourceFailed, "entry 12 of the catalogue is bad: name must be a string")
	wantError(t, errorOf(client.Template(t.Context(), from, "twice")), svc.CodeSourceFailed, "is bad: its id occurs more than once")
	wantError(t, errorOf(client.Template(t.Context(), from, "")), svc.CodeNotFound)
	wantError(t, errorOf(client.Template(t.Context(), from, "Twice")), svc.CodeNotFound)
}

func digest(canonical string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(canonical)))
}

func withDigest(digest string) string {
	return fmt.Sprintf(`{"templates":[{"id":"a","name":"A","manifest_file":"m.json","manifest_digest":%q}]}`, digest)
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
		catalog := must(marketplace.ParseCatalog([]byte(`{"templates":[{"id":"a","name":"A",` + text + `}]}`)))
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
	catalog := must(client.Catalog(t.Context(), from, 0))
	s.requests()
	manifest := must(client.Manifest(t.Context(), from, catalog.Entries[0]))
	is.Equal(string(manifest), `{"version":"1"}`)
	is.Equal(len(s.requests()), 1)
	for _, path := range []string{"../m.json", "/m.json", "%2e%2e/m.json", "https://h/m.json"} {
		wantError(t, errorOf(client.Manifest(t.Context(), from, svc.CatalogEntry{ID: "a", ManifestFile: path})), svc.CodeSourceFailed, "its manifest_file must")
	}
	is.Equal(len(s.requests()), 0)
	inline := must(client.Manifest(t.Context(), from, svc.CatalogEntry{Content: svc.Content{Manifest: []byte(`{}`)}}))
	is.Equal(string(inline), `{}`)
	wantError(t, errorOf(client.Manifest(t.Context(), upstream("http://127.0.0.1:1"), catalog.Entries[0])), svc.CodeSourceFailed, "its address")
}

// The revision of a catalogue depends on its content, not on its formatting.
func TestCatalogRevision(t *testing.T) {
	is := is.New(t)
	revision := func(text string) string { return must(marketplace.ParseCatalog([]byte(text))).Revision }
	is.Equal(revision(fileEntry), revision(" "+fileEntry+"\n"))
	is.True(revision(fileEntry) != revision(oneEntry))
	is.True(len(revision(`{"templates":[]}`)) == len("sha256:")+64)
}

// published returns the directory of the published catalogue for agent memory. It is below
// SVC_CATALOGUES, or below shared/catalogues in a parent directory.
func published(t *testing.T) string {
	t.Helper()
	var candidates []string
	if root := os.Getenv("SVC_CATALOGUES"); root != "" {
		candidates = append(candidates, root)
	} else {
		at := must(os.Getwd())
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
	is.New(t).NoErr(json.Compact(&b, data))
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
			catalog := must(client.Catalog(t.Context(), upstream(url), 0))
			is.Equal(len(catalog.Entries), 8)
			is.Equal(len(catalog.Problems), 0)
			for _, entry := range catalog.Entries {
				content := must(client.Template(t.Context(), upstream(url), entry.ID))
				is.True(entry.ManifestFile != "")
				file := must(os.ReadFile(filepath.Join(dir, filepath.FromSlash(entry.ManifestFile))))
				is.Equal(string(content.Manifest), compact(t, file))
				must(content.Revision())
			}
		})
	}
}

// signer signs catalogues. A letter gives its key.
type signer struct{ key ed25519.PrivateKey }

func newSigner(letter byte) signer {
	return signer{ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(letter), ed25519.SeedSize)))}
}

func (s signer) public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

func (s signer) sign(text string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(s.key, []byte(text)))
}

// series is a catalogue with one version of the template "a".
func series(version string, serial any, more string) string {
	return fmt.Sprintf(`{"serial":%v,%s"templates":[{"id":"a","name":"A","manifest":{"version":%q}}]}`, serial, more, version)
}

// publish puts a signed catalogue on a shelf.
func (s *shelf) publish(by signer, catalog string) {
	s.tagged("/templates.json", catalog)
	s.put("/templates.json.sig", shelved{body: by.sign(catalog) + "\n"})
}

// memory is a SourceMemory that keeps its serial.
type memory struct {
	files  map[string][]byte
	serial int64
	err    error // of AcceptSerial
}

func (m *memory) File(_ context.Context, path string) []byte { return m.files[path] }

func (m *memory) KeepFile(_ context.Context, path string, data []byte) {
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[path] = data
}

func (m *memory) AcceptSerial(_ context.Context, serial int64) (int64, error) {
	m.serial = max(m.serial, serial)
	return m.serial, m.err
}

func TestSignedFiles(t *testing.T) {
	acme := newSigner('a')
	files := fstest.MapFS{"templates.json": {Data: []byte(series("1", 1, ""))}}
	client := newClient(t, marketplace.Config{Files: map[string]fs.FS{"shelf": files}})
	from := upstream("fs://shelf")
	from.SigningKey = acme.public()
	refuses(t, client, from, "is not signed: templates.json.sig does not exist")
	files["templates.json.sig"] = &fstest.MapFile{Data: []byte(acme.sign(series("1", 1, "")))}
	is.New(t).Equal(version(t, client, from), `{"version":"1"}`)
}
