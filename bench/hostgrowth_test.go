package bench_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Limits of what a host may gain. The target of both sizes is 2 MB, which is missed: see README.md.
// These limits stop unnoticed growth.
const (
	mostModules  = 5
	mostGrowth   = 3_900_000 // bytes, as go build links it
	mostStripped = 2_900_000 // without symbols and debug information
)

// TestHostGrowth checks what a host gains from mounting the interface: the growth of its binary and
// the modules in its go.sum.
func TestHostGrowth(t *testing.T) {
	host := newHost(t)
	if n := host.modules(); n > mostModules {
		t.Errorf("go.sum names %d modules, and may name %d", n, mostModules)
	}
	for _, store := range []string{"memstore", "sqlstore"} {
		for flags, most := range map[string]int64{"": mostGrowth, "-s -w": mostStripped} {
			grows := host.size(store, flags) - host.size("bare", flags)
			t.Logf("%s, linked with %q: %.2f MB", store, flags, float64(grows)/1e6)
			if grows > most || grows < most/10 {
				t.Errorf("over %s and linked with %q, the binary grows by %d bytes, and may by %d", store, flags, grows, most)
			}
		}
	}
}

// BenchmarkHostGrowth reports the same.
func BenchmarkHostGrowth(b *testing.B) {
	host := newHost(b)
	for b.Loop() {
		b.ReportMetric(float64(host.modules()), "modules")
		for _, store := range []string{"memstore", "sqlstore"} {
			b.ReportMetric(float64(host.size(store, "")-host.size("bare", ""))/1e6, "MB-"+store)
			b.ReportMetric(float64(host.size(store, "-s -w")-host.size("bare", "-s -w"))/1e6, "MB-"+store+"-stripped")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// host is a module that requires only this project.
type host struct {
	testing.TB
	folder string
}

func newHost(tb testing.TB) host {
	tb.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		tb.Fatal(err)
	}
	h := host{TB: tb, folder: tb.TempDir()}
	if err := os.CopyFS(h.folder, os.DirFS("testdata/hosts")); err != nil {
		tb.Fatal(err)
	}
	h.run("mod", "init", "example.com/host")
	h.run("mod", "edit", "-require=github.com/extsvc/svc@v0.0.0", "-replace=github.com/extsvc/svc="+root)
	h.run("mod", "tidy")
	return h
}

func (h host) run(args ...string) {
	h.Helper()
	command := exec.CommandContext(h.Context(), "go", args...)
	command.Dir = h.folder
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if said, err := command.CombinedOutput(); err != nil {
		h.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

// modules counts the modules in go.sum.
func (h host) modules() int {
	h.Helper()
	sums, err := os.ReadFile(filepath.Join(h.folder, "go.sum"))
	if err != nil {
		h.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(sums)) {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	return len(names)
}

// size returns the bytes of that host's binary.
func (h host) size(name, flags string) int64 {
	h.Helper()
	binary := filepath.Join(h.folder, fmt.Sprint(name, len(flags)))
	h.run("build", "-o", binary, "-ldflags="+flags, "./"+name)
	about, err := os.Stat(binary)
	if err != nil {
		h.Fatal(err)
	}
	return about.Size()
}
