package main

import (
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/porttest"
)

func TestMain(m *testing.M) { programtest.Main(m, "SVC_EXAMPLE_EMBED", main) }

func TestMainIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n)\n")
	if lines := strings.Count(strings.TrimSpace(body), "\n") + 1; lines > 14 { // and the package clause
		t.Errorf("%d lines besides the imports", lines)
	}
}

func TestProgramRuns(t *testing.T) {
	is := is.New(t)
	address := porttest.Free(t)
	programtest.Start(t, []string{"SVC_EXAMPLE_EMBED=1", "ADMIN_TOKEN=correct-horse", "ADDR=" + address})
	status := func(path, bearer string) int { return programtest.Status(t, "GET", "http://"+address+path, bearer) }
	is.Equal(status("/", ""), 404) // the host has no page yet
	is.Equal(status("/ext/svc/admin/templates", ""), 401)
	is.Equal(status("/ext/svc/admin/templates", "correct-horse"), 200)
}
