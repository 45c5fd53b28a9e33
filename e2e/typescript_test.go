package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
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
	p := newProgram(t, "typescript", "tsconfig.json", "drive.ts", "mistakes.ts")
	u := newUpstream(t, map[string]string{})
	u.takingFiles()
	s := newSite(t, trusting(u))
	p.write("openapi.json", s.as("").send("GET", "/openapi.json", "").is(200).body)
	p.run("node_modules/.bin/openapi-typescript", "openapi.json", "--empty-objects-unknown", "-o", "svc.ts")
	p.compile()
	p.environment = append(p.environment, "SVC_URL="+s.url, "SVC_KEY="+s.key("admin"), "SVC_CATALOGUE="+u.URL+"/acme")
	if out := p.run("node", "out/drive.js"); out != steps {
		t.Errorf("have\n%swant\n%s", out, steps)
	}
}

// takingFiles makes a server accept files by PUT.
func (u *upstream) takingFiles() {
	u.answer(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/acme/")
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			u.put(name, string(body))
			w.WriteHeader(http.StatusNoContent)
			return
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		_, _ = io.WriteString(w, u.files[name])
	})
}

// program is a copy of a folder with a program for Node.js, with its packages.
type program struct {
	t           *testing.T
	dir         string
	environment []string
}

func newProgram(t *testing.T, folder string, files ...string) program {
	t.Helper()
	p := program{t, t.TempDir(), append(os.Environ(), "NODE_OPTIONS=", "NO_COLOR=1")}
	p.needNode()
	for _, name := range append(files, "package.json", "package-lock.json") {
		p.write(name, must(os.ReadFile(filepath.Join(folder, name))))
	}
	out, err := p.try("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund",
		"--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=8000")
	if strings.Contains(out, "EUSAGE") || strings.Contains(out, "EINTEGRITY") {
		t.Fatalf("package.json and package-lock.json do not fit: %s", out)
	} else if err != nil {
		p.missing("npm cannot get the packages of e2e/%s: %v: %s", folder, err, out)
	}
	return p
}

// needNode checks for npm and for a Node.js that package.json allows.
func (p program) needNode() {
	p.t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		p.missing("there is no npm: %v", err)
	}
	version, err := p.try("node", "--version")
	if err != nil {
		p.missing("there is no Node.js: %v", err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		p.missing("Node.js is %q, and has to be 20 or newer", version)
	}
}

// missing skips a test that has no Node.js, or fails it where Node.js is required.
func (p program) missing(format string, args ...any) {
	p.t.Helper()
	if os.Getenv("SVC_REQUIRE_NODE") == "1" {
		p.t.Fatalf(format, args...)
	}
	p.t.Skipf("NOT TESTED: "+format, args...)
}

func (p program) write(name string, data []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a command to its end and returns its output.
func (p program) run(name string, args ...string) string {
	p.t.Helper()
	out, err := p.try(name, args...)
	if err != nil {
		p.t.Fatalf("%s: %v: %s", name, err, out)
	}
	return out
}

func (p program) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	if strings.Contains(name, "/") {
		name = filepath.Join(p.dir, name)
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env, command.WaitDelay = p.dir, p.environment, time.Second
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		out = append(out, stderr.Bytes()...)
	}
	return string(out), err
}

var (
	reported  = regexp.MustCompile(`^(\S+)\((\d+),\d+\): error (TS\d+): .*`)
	announced = regexp.MustCompile(`// (TS\d+): `)
)

// compile checks that the compiler reports exactly the errors that mistakes.ts announces, each in
// its line.
func (p program) compile() {
	p.t.Helper()
	missed := map[string]bool{}
	for i, line := range strings.Split(string(must(os.ReadFile(filepath.Join(p.dir, "mistakes.ts")))), "\n") {
		if found := announced.FindStringSubmatch(line); found != nil {
			missed[fmt.Sprintf("mistakes.ts line %d: %s", i+1, found[1])] = true
		}
	}
	if len(missed) == 0 {
		p.t.Fatal("no mistake is announced")
	}
	out, err := p.try("node_modules/.bin/tsc", "--pretty", "false")
	for line := range strings.Lines(out) {
		found := reported.FindStringSubmatch(line)
		if found == nil {
			continue // the error goes on from the line before
		}
		at := fmt.Sprintf("%s line %s: %s", found[1], found[2], found[3])
		if !missed[at] {
			p.t.Error(found[0])
		}
		delete(missed, at)
	}
	for at := range missed {
		p.t.Errorf("%s is not reported", at)
	}
	if err == nil || p.t.Failed() {
		p.t.Fatalf("tsc: %v", err)
	}
}
