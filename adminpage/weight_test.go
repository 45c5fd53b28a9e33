package adminpage_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/longtest"
)

// A host that does not import the package pays nothing: the interface does not import it. One that
// does gets a binary that is at most 3.5 MB larger.
func TestWeight(t *testing.T) {
	imported := must(exec.Command("go", "list", "-deps", "../httpapi").Output())
	for _, path := range strings.Fields(string(imported)) {
		if strings.HasSuffix(path, "/adminpage") || path == "html/template" {
			t.Errorf("httpapi imports %s", path)
		}
	}
	longtest.Test(t, "the size of a binary")
	with := binarySize(t, `page := adminpage.New(service, adminpage.Options{})
	handler = page.Mount(handler)`, `"github.com/extsvc/svc/adminpage"`)
	without := binarySize(t, "", "")
	t.Logf("%d bytes with the pages, %d without: %d more", with, without, with-without)
	if more := with - without; more > 3_500_000 || more < 100_000 {
		t.Errorf("the pages take %d bytes", more)
	}
}

// binarySize builds a program that serves the interface, with some more code, and returns the size
// of its stripped binary. It has no paths, which differ in length.
func binarySize(t *testing.T, code, imports string) int64 {
	t.Helper()
	dir := t.TempDir()
	program := `package main

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/store/memstore"
	` + imports + `
)

func main() {
	service, err := svc.New(svc.Config{Store: memstore.New()})
	if err != nil {
		panic(err)
	}
	handler := httpapi.New(service, httpapi.Options{}).Mount(http.NotFoundHandler())
	` + code + `
	panic(http.ListenAndServe("127.0.0.1:0", handler))
}
`
	// The program is a package of this module, which only the build sees.
	file, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	place := filepath.Join(must(filepath.Abs("weight")), "main.go")
	files := must(json.Marshal(map[string]any{"Replace": map[string]string{place: file}}))
	err := errors.Join(os.WriteFile(file, []byte(program), 0o600), os.WriteFile(overlay, files, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-ldflags=-s -w", "-o", binary, "./weight")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return must(os.Stat(binary)).Size()
}
