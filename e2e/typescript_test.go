package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/e2e/program"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/marketplace"
)

// steps are the lines that typescript/drive.ts prints on success.
const steps = `a source is registered
what it offers is listed
a template is installed
and patched, null clears
If-Match is heeded
an update is noticed
problems are told by their codes
the update is forced
a key is issued, once
and used
and refused once it is revoked
access is decided
a list is read by pages
`

// TestTypeScript generates a client from the document that the server serves, and runs the main
// tasks with it. A caller's mistakes are type errors.
//
// Without Node.js or its packages the test is skipped; with SVC_REQUIRE_NODE=1 it fails instead.
func TestTypeScript(t *testing.T) {
	longtest.Test(t, "a generated client")
	p := program.New(t, "typescript")
	p.GetPackages()
	files := program.Catalogue(t)
	s := newSite(t, func(c *svc.Config) {
		c.Sources.Marketplace = must(marketplace.New(marketplace.Config{AllowOrigins: []string{files}}))
	})
	p.Write("openapi.json", s.as("").send("GET", "/openapi.json", "").is(200).body)
	p.Run("node_modules/.bin/openapi-typescript", "openapi.json", "-o", "svc.ts")
	compile(t, p)
	p.Environment = append(p.Environment, "SVC_URL="+s.url, "SVC_KEY="+s.key("admin"), "SVC_CATALOGUE="+files+"/acme")
	if out := p.Run("node", "out/drive.js"); out != steps {
		t.Errorf("have\n%swant\n%s", out, steps)
	}
}

var (
	reported  = regexp.MustCompile(`^(\S+)\((\d+),\d+\): error (TS\d+): .*`)
	announced = regexp.MustCompile(`// (TS\d+): `)
)

// compile checks that the compiler reports exactly the errors that mistakes.ts announces, each in its line.
func compile(t *testing.T, p *program.Program) {
	t.Helper()
	missed := map[string]bool{}
	for i, line := range strings.Split(string(must(os.ReadFile(filepath.Join(p.Dir, "mistakes.ts")))), "\n") {
		if found := announced.FindStringSubmatch(line); found != nil {
			missed[fmt.Sprintf("mistakes.ts line %d: %s", i+1, found[1])] = true
		}
	}
	if len(missed) == 0 {
		t.Fatal("no mistake is announced")
	}
	out, err := p.Try("node_modules/.bin/tsc", "--pretty", "false")
	for line := range strings.Lines(out) {
		found := reported.FindStringSubmatch(line)
		if found == nil {
			continue // the error goes on from the line before
		}
		at := fmt.Sprintf("%s line %s: %s", found[1], found[2], found[3])
		if !missed[at] {
			t.Error(found[0])
		}
		delete(missed, at)
	}
	for at := range missed {
		t.Errorf("%s is not reported", at)
	}
	if err == nil || t.Failed() {
		t.Fatalf("tsc: %v", err)
	}
}
