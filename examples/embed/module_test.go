package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// shell is the first block of commands of a page.
var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestFreshModule: the program builds in a module of its own, outside of this repository, after the
// commands of docs/hosting.md. Flag -mod=mod does the part of "go mod tidy" that a build needs.
func TestFreshModule(t *testing.T) {
	is := is.New(t)
	root, err := filepath.Abs("../..")
	is.NoErr(err)
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, args, err, said)
		}
	}
	program, err := os.ReadFile("main.go")
	is.NoErr(err)
	is.NoErr(os.WriteFile(filepath.Join(dir, "main.go"), program, 0o600))
	var sums [][]byte // so that the build asks no checksum database
	for _, module := range []string{"go.sum", "store/sqlite/go.sum"} {
		sum, err := os.ReadFile(filepath.Join(root, module))
		is.NoErr(err)
		sums = append(sums, sum)
	}
	is.NoErr(os.WriteFile(filepath.Join(dir, "go.sum"), bytes.Join(sums, nil), 0o600))

	page, err := os.ReadFile(filepath.Join(root, "docs/hosting.md"))
	is.NoErr(err)
	commands := shell.FindSubmatch(page)
	is.True(len(commands) == 2)
	run("go", "mod", "init", "example.com/host")
	run("sh", "-c", strings.ReplaceAll(string(commands[1]), "=../svc", "="+root))
	run("go", "build", "-o", os.DevNull, ".")
}
