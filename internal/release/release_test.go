package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRelease rehearses the first version: the folder has it, a host of its own gets it from there, the
// same commit makes the same bytes, and what may not be released is refused. Only this machine's program
// is built.
func TestRelease(t *testing.T) {
	if os.Getenv("CI") == "" {
		t.Skip("NOT TESTED: a release; set CI=true")
	}
	platforms = platforms[:1]
	clone, out := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	does(t, ".", "git", "clone", "-q", "../..", clone)
	does(t, clone, "git", "config", "user.email", "release@example.com")
	does(t, clone, "git", "config", "user.name", "release")
	released := func(version, out string) error { return run(t.Context(), clone, version, out, false) }

	noErr(t, released("v0.1.0", out))
	again, scratch := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", scratch)
	ending, end := context.WithTimeout(t.Context(), 3*time.Second)
	defer end()
	refused(t, run(ending, clone, "v0.1.0", again, false), "") // of whatever it did
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("%v, a release that was ended has left %v", err, left)
	}
	noErr(t, released("v0.1.0", again))
	does(t, out, "diff", "-r", out, again)
	if got := does(t, out, "bin/server-linux-amd64", "version"); got != "v0.1.0\n" {
		t.Errorf("the program says %q", got)
	}
	does(t, filepath.Join(out, "bin"), "sha256sum", "--check", "SHA256SUMS")
	hostGets(t, clone, out)

	refused(t, released("v0.1.0", out), "is there already")
	refused(t, released("", out), "is no version")
	refused(t, released("0.1.1", out), "is no version")
	refused(t, released("v2.0.0", out), "below v2")
	refused(t, released("v0.1.1", out), "CHANGELOG.md has no section [0.1.1]")
	changelog := filepath.Join(clone, "CHANGELOG.md")
	edits(t, changelog, "## [0.1.0]", "## [0.1.1] - 2026-12-01\n\n- Clocks go forward.\n\n## [0.1.0]")
	refused(t, released("v0.1.1", out), "the tree is not what is committed")
	edits(t, filepath.Join(clone, "svctest", "clock.go"), "Advance(", "Forward(")
	does(t, clone, "git", "commit", "-qam", "Clocks go forward")
	refused(t, released("v0.1.1", out), "(*Clock).Advance: removed")
	edits(t, changelog, "- Clocks go", "- Breaking: clocks go")
	does(t, clone, "git", "commit", "-qam", "It breaks hosts")
	noErr(t, released("v0.1.1", out))
	list, err := os.ReadFile(filepath.Join(out, "proxy", rootModule, "@v", "list"))
	if err != nil || string(list) != "v0.1.0\nv0.1.1\n" {
		t.Errorf("%v, the proxy lists %q", err, list)
	}
}

// hostGets is a host in a module of its own: README's first program, and the server by its address.
func hostGets(t *testing.T, clone, out string) {
	r := release{root: clone, out: out, scratch: t.TempDir(), version: "v0.1.0"}
	env, err := r.hostEnv(t.Context())
	noErr(t, err)
	env = append(env, "ADMIN_TOKEN=correct-horse")
	for _, m := range []string{"/store/sqlite", "/store/postgres", "/examples"} {
		if _, err := os.Stat(filepath.Join(out, "proxy", rootModule, m, "@v", "v0.1.0.zip")); err != nil {
			t.Error(err)
		}
	}
	readme, err := os.ReadFile(filepath.Join(clone, "README.md"))
	noErr(t, err)
	block := func(language string) string {
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(string(readme))
		if found == nil {
			t.Fatalf("README has no block of %s", language)
		}
		return found[1]
	}
	host := t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(host, "main.go"), []byte(block("go")), 0o600))
	in := func(args ...string) string {
		t.Helper()
		said, err := command(host, env, args...).output(t.Context())
		noErr(t, err)
		return string(said)
	}
	in("go", "mod", "init", "example.com/host")
	in("sh", "-c", block("sh")) // go get
	in("go", "build", "-o", "host", ".")
	in("go", "install", program+"@v0.1.0")
	if got := in(filepath.Join(r.scratch, "gopath", "bin", "server"), "version"); got != "v0.1.0\n" {
		t.Errorf("the installed program says %q", got)
	}
	address := ""
	for address == "" { // systems give higher ports to connections, and to listeners that ask for any
		if free, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))); err == nil {
			address = free.Addr().String()
			_ = free.Close()
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	served := exec.CommandContext(ctx, filepath.Join(host, "host"))
	served.Dir, served.Env = host, append(os.Environ(), "ADMIN_TOKEN=correct-horse", "ADDR="+address)
	noErr(t, served.Start())
	defer func() { stop(); _ = served.Wait() }()
	if got := asks(t, "http://"+address+"/ext/svc/admin/templates"); got != `{"templates":[]}`+"\n" {
		t.Errorf("the host answers %q", got)
	}
	if got := asks(t, "http://"+address+"/ext/svc/openapi.json"); !strings.Contains(got, `"version":"v0.1.0"`) &&
		!strings.Contains(got, `"version": "v0.1.0"`) {
		t.Errorf("the document has no version: %.300s", got)
	}
}

// asks repeats a request until the server answers.
func asks(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	noErr(t, err)
	request.Header.Set("Authorization", "Bearer correct-horse")
	for range 6000 {
		if answer, err := http.DefaultClient.Do(request); err == nil {
			defer answer.Body.Close()
			body, _ := io.ReadAll(answer.Body)
			return string(body)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the host does not start")
	return ""
}

func does(t *testing.T, folder string, args ...string) string {
	t.Helper()
	said, err := command(folder, nil, args...).output(t.Context())
	noErr(t, err)
	return string(said)
}

func edits(t *testing.T, file, old, with string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%v, or %s has no %q", err, file, old)
	}
	noErr(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, with, 1)), 0o600))
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, why string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %q", err, why)
	}
}
