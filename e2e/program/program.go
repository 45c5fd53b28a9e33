// Package program runs programs of other languages and modules in tests: a folder of their files is
// copied, and commands run in the copy.
package program

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Program is a copy of a folder. It ends with its test.
type Program struct {
	Dir         string   // the copy
	Environment []string // of its commands
	t           testing.TB
}

// New copies a folder with all that is in it.
func New(t testing.TB, folder string) *Program {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return &Program{dir, append(os.Environ(), "NODE_OPTIONS=", "NO_COLOR=1", "GOWORK=off"), t}
}

// GetPackages gets the packages of package-lock.json. Without Node.js or the packages the test is
// skipped; with SVC_REQUIRE_NODE=1 it fails instead.
func (p *Program) GetPackages() {
	p.t.Helper()
	p.needNode()
	out, err := p.Try("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit",
		"--no-fund", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
	if strings.Contains(out, "EUSAGE") || strings.Contains(out, "EINTEGRITY") {
		p.t.Fatalf("package.json and package-lock.json do not fit: %s", out)
	} else if err != nil {
		p.Missing("npm cannot get the packages: %v: %s", err, out)
	}
}

// needNode checks for npm and for a Node.js that package.json allows.
func (p *Program) needNode() {
	p.t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		p.Missing("there is no npm: %v", err)
	}
	version, err := p.Try("node", "--version")
	if err != nil {
		p.Missing("there is no Node.js: %v", err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		p.Missing("Node.js is %q, and has to be 20 or newer", version)
	}
}

// Missing skips a test that lacks a program, or fails it with SVC_REQUIRE_NODE=1.
func (p *Program) Missing(format string, args ...any) {
	p.t.Helper()
	if os.Getenv("SVC_REQUIRE_NODE") == "1" {
		p.t.Fatalf(format, args...)
	}
	p.t.Skipf("NOT TESTED: "+format, args...)
}

// Write writes a file, in a folder that it makes.
func (p *Program) Write(name string, data []byte) {
	p.t.Helper()
	name = filepath.Join(p.Dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// Run runs a command to its end and returns its output. A failure fails the test.
func (p *Program) Run(name string, args ...string) string {
	p.t.Helper()
	out, err := p.Try(name, args...)
	if err != nil {
		p.t.Fatalf("%s: %v: %s", name, err, out)
	}
	return out
}

// Try runs a command to its end, at the latest until shortly before the time of the tests is over: what it has
// said is not lost. A name with a slash is below Dir. The output of a failure includes what the command wrote
// to its standard error.
func (p *Program) Try(name string, args ...string) (string, error) {
	ctx, cancel := p.t.Context(), func() {}
	if test, of := p.t.(interface{ Deadline() (time.Time, bool) }); of {
		if end, limited := test.Deadline(); limited {
			ctx, cancel = context.WithDeadline(ctx, end.Add(-10*time.Second))
		}
	}
	defer cancel()
	if strings.Contains(name, "/") {
		name = filepath.Join(p.Dir, name)
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env, command.WaitDelay = p.Dir, p.Environment, time.Second
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		out = append(out, stderr.Bytes()...)
	}
	return string(out), err
}

// Catalogue serves files that its clients put, until the end of the test, and returns its address.
func Catalogue(t testing.TB) string {
	var mu sync.Mutex
	files := map[string][]byte{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut {
			files[r.URL.Path], _ = io.ReadAll(r.Body)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(files[r.URL.Path])
	}))
	t.Cleanup(web.Close)
	return web.URL
}
