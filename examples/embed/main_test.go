package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

// TestMain lets a test run this binary as the program itself.
func TestMain(m *testing.M) {
	if os.Getenv("SVC_EXAMPLE_EMBED") != "" {
		main()
	}
	os.Exit(m.Run())
}

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
	free, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	address := free.Addr().String()
	is.NoErr(free.Close())
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.Dir = t.TempDir()
	program.Env = append(os.Environ(), "SVC_EXAMPLE_EMBED=1", "ADMIN_TOKEN=correct-horse", "ADDR="+address)
	is.NoErr(program.Start())
	defer func() { _, _ = program.Process.Kill(), program.Wait() }()
	is.Equal(status(t, "http://"+address+"/", ""), 404) // the host has no page yet
	is.Equal(status(t, "http://"+address+"/ext/svc/admin/templates", ""), 401)
	is.Equal(status(t, "http://"+address+"/ext/svc/admin/templates", "correct-horse"), 200)
}

// status repeats a request until the server answers.
func status(t *testing.T, url, bearer string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+bearer)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close()
			return answer.StatusCode
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
