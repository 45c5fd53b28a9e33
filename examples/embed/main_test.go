package main

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// TestMain lets a test run this binary as the program itself.
func TestMain(m *testing.M) {
	if os.Getenv("SVC_EXAMPLE_EMBED") != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestMainIsShort(t *testing.T) {
	is := is.New(t)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "main.go", nil, 0)
	is.NoErr(err)
	lines := 0
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "main" {
			lines = files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1
		}
	}
	is.True(lines > 0 && lines <= 15) // the first and last line count
}

func TestSignedIn(t *testing.T) {
	is := is.New(t)
	t.Setenv("ADMIN_TOKEN", "")
	_, err := signedIn(context.Background(), "")
	is.True(errors.Is(err, svc.ErrUnauthenticated))
	t.Setenv("ADMIN_TOKEN", "correct-horse")
	_, err = signedIn(context.Background(), "correct-hors")
	is.True(errors.Is(err, svc.ErrUnauthenticated))
	who, err := signedIn(context.Background(), "correct-horse")
	is.NoErr(err)
	is.Equal(who.ID, "admin")
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
	is.Equal(status(t, "http://"+address+"/", ""), 200)
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
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
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
