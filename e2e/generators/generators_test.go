package generators_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/program"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/store/sqlite"
)

// tasks are the lines that every program prints on success.
const tasks = `a template is created, listed, patched and deleted
a conflict names the fields that were edited
problems have types
a decision has its reasons
a key is issued, listed and revoked
events are listed
`

// documents are the files of the documents that a server serves.
var documents = []string{"openapi.json", "openapi-3.0.json"}

func onlyInCI(t *testing.T) {
	t.Helper()
	if os.Getenv("CI") != "true" {
		t.Skip("NOT TESTED: the generators run only with CI=true")
	}
}

// Go clients come from the document of OpenAPI 3.0. oapi-codegen also reads the other.
func TestGo(t *testing.T) {
	onlyInCI(t)
	p := program.New(t, "testdata/go")
	serve(t).documents(t, p)
	p.Run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "oapi/api/api.go", "openapi-3.0.json")
	p.Run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "oapi31/api.go", "openapi.json")
	p.Run("go", "tool", "ogen", "--package", "api", "--target", "ogen/api", "openapi-3.0.json")
	p.Run("go", "build", "-o", "./bin/", "./oapi31", "./oapi", "./ogen")
	for _, name := range []string{"oapi", "ogen"} {
		t.Run(name, func(t *testing.T) {
			serve(t).drive(t, p, filepath.Join("bin", name))
		})
	}
}

// TypeScript clients come from either document.
func TestTypeScript(t *testing.T) {
	onlyInCI(t)
	p := program.New(t, "testdata/npm")
	p.GetPackages()
	serve(t).documents(t, p)
	for _, name := range documents {
		version := strings.TrimSuffix(name, ".json")
		p.Run("node_modules/.bin/openapi-typescript", name, "-o", version+".ts")
		p.Run("node_modules/.bin/openapi-ts", "-i", name, "-o", version)
	}
	p.Run("node_modules/.bin/tsc", "--pretty", "false")
	serve(t).drive(t, p, "node", "out/drive.js")
	for _, name := range documents {
		t.Run("lint "+name, func(t *testing.T) { lint(t, p, name) })
	}
}

// lint wants two linters to find nothing, not even a warning.
func lint(t *testing.T, p *program.Program, name string) {
	out, err := p.Try("node_modules/.bin/redocly", "lint", "--extends", "recommended", "--format", "json", name)
	if err != nil || !strings.Contains(out, `"problems": []`) {
		t.Errorf("redocly: %v: %s", err, out)
	}
	out, err = p.Try("node_modules/.bin/spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "hint", name)
	if err != nil {
		t.Errorf("spectral: %v: %s", err, out)
	}
}

// server is a server, and a catalogue whose files its clients put.
type server struct{ url, key, catalogue string }

// documents writes the documents to the folder of a program, as the server serves them.
func (s server) documents(t *testing.T, p *program.Program) {
	t.Helper()
	for _, name := range documents {
		answer, err := http.Get(s.url + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", name, answer.StatusCode, err)
		}
		p.Write(name, text)
	}
}

// drive runs a program with the server. The program must do all tasks.
func (s server) drive(t *testing.T, p *program.Program, name string, args ...string) {
	t.Helper()
	with := *p
	with.Environment = append(p.Environment[:len(p.Environment):len(p.Environment)],
		"SVC_URL="+s.url, "SVC_KEY="+s.key, "SVC_CATALOGUE="+s.catalogue)
	if out := with.Run(name, args...); out != tasks {
		t.Errorf("%s: have\n%swant\n%s", name, out, tasks)
	}
}

const access = `{
  "users": [{"id": "admin"}],
  "policies": [{"id": "all", "document": {"version": "2026-03-24", "statements": [
    {"effect": "allow", "actions": ["iam:*", "template:*", "bank:recall"], "banks": ["*"], "recall_budget": "high"}]}}],
  "attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "admin"}]
}`

// serve serves a new database until the end of the test.
func serve(t *testing.T) server {
	t.Helper()
	files := catalogue(t)
	store := must(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "svc.db"), sqlite.Options{}))
	service := must(svc.New(svc.Config{
		Store:   store,
		Sources: svc.SourceConfig{Marketplace: must(marketplace.New(marketplace.Config{AllowOrigins: []string{files}}))},
		Keys:    svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: []byte("sixteen bytes or more")}}},
		Events:  svc.EventConfig{Keep: true},
	}))
	web := httptest.NewServer(httpapi.New(service, httpapi.Options{}))
	t.Cleanup(func() {
		web.Close()
		_ = service.Close()
		_ = store.Close()
	})
	if err := service.Access.Apply(t.Context(), svc.Host, must(svc.ParseBundle([]byte(access)))); err != nil {
		t.Fatal(err)
	}
	key := must(service.Keys.Issue(t.Context(), svc.Host, svc.Identity{Kind: svc.KindUser, ID: "admin"}, svc.NewAPIKey{}))
	return server{web.URL + httpapi.DefaultPrefix, string(key.Key), files + "/acme"}
}

// catalogue serves files that its clients put, and returns its address.
func catalogue(t *testing.T) string {
	var mu sync.Mutex
	files := map[string][]byte{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut {
			files[r.URL.Path], _ = io.ReadAll(r.Body)
			return
		}
		_, _ = w.Write(files[r.URL.Path])
	}))
	t.Cleanup(web.Close)
	return web.URL
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
