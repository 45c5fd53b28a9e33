package generators_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/program"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/marketplace"
	"github.com/extsvc/svc/svctest"
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
		t.Run(name, func(t *testing.T) { serve(t).drive(t, p, filepath.Join("bin", name)) })
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

// serve serves a catalogue, and a database until the end of the test.
func serve(t *testing.T) server {
	t.Helper()
	files := program.Catalogue(t)
	s := svctest.New(t, svctest.Options{Config: func(c *svc.Config) {
		market, err := marketplace.New(marketplace.Config{AllowOrigins: []string{files}})
		if err != nil {
			t.Fatal(err)
		}
		c.Sources.Marketplace, c.Events.Keep = market, true
	}})
	return server{s.URL + httpapi.DefaultPrefix, string(s.Admin.Key), files + "/acme"}
}
