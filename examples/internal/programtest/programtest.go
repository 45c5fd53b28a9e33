// Package programtest starts the example programs in their tests, and asks them.
package programtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/longtest"
)

// Main runs the binary of the tests as the program itself where the variable is set, and the tests elsewhere.
// More tests run concurrently than there are processors, because most wait for a database or a process.
func Main(m *testing.M, variable string, program func()) {
	if os.Getenv(variable) != "" {
		program()
		os.Exit(0)
	}
	longtest.AtOnce(min(8, 4*runtime.GOMAXPROCS(0))) // a program may have ten connections to PostgreSQL
	os.Exit(m.Run())
}

// Program is a program that runs as a separate process.
type Program struct {
	*exec.Cmd
	Lines *bufio.Scanner // of its standard output
}

// patience is how long a test waits before it gives up: the tests of a package share the processors.
const patience = 5 * time.Minute

// Start runs the binary of the tests as the program, until the end of the test or of patience. See [Main].
func Start(t testing.TB, environment []string, args ...string) Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	p := Program{Cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	p.Dir, p.Env, p.Stderr = t.TempDir(), append(os.Environ(), environment...), t.Output()
	stdout, err := p.StdoutPipe()
	if err == nil {
		err = p.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Process.Kill(), p.Wait() })
	p.Lines = bufio.NewScanner(stdout)
	return p
}

// Ask sends a request with headers, each "Name: value", and returns the answer and its body. It waits for
// a server that does not listen yet.
func Ask(t testing.TB, client *http.Client, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	var answer *http.Response
	var failed error
	listens := Soon(func() bool {
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			failed = err
			return true
		}
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			request.Header.Set(name, value)
		}
		answer, failed = client.Do(request)
		return !errors.Is(failed, syscall.ECONNREFUSED)
	})
	if failed != nil || !listens {
		t.Errorf("%s %s: %v", method, url, failed)
		return &http.Response{}, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return answer, string(text)
}

// Status returns the status of the answer to a request without a body.
func Status(t testing.TB, method, url, bearer string) int {
	t.Helper()
	var headers []string
	if bearer != "" {
		headers = []string{"Authorization: Bearer " + bearer}
	}
	answer, _ := Ask(t, http.DefaultClient, method, url, "", headers...)
	return answer.StatusCode
}

// Soon reports whether something happens before patience ends.
func Soon(happens func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if happens() {
			return true
		}
	}
	return false
}

// Unread is a standard output without a reader. It calls End when a line begins with Line.
type Unread struct {
	Line string
	End  func()
}

func (u Unread) Write(line []byte) (int, error) {
	if strings.HasPrefix(string(line), u.Line) {
		u.End()
	}
	return 0, syscall.EPIPE
}

// Shell runs commands, which must succeed and print nothing, in a folder.
func Shell(t testing.TB, folder, commands string, environment ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), environment...)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%s: %v: %s", commands, err, out)
	}
}

// Block returns the text of a page between two lines: begin, and the end of a block of code.
func Block(t testing.TB, page, begin string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), begin+"\n")
	inside, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("%s has no block %q", page, begin)
	}
	return inside
}

// Need skips a test that lacks a program, which is what is not tested then. With CI=true the test fails.
func Need(t testing.TB, program, what string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("CANNOT TEST %s: %s is missing", what, program)
	}
	t.Skipf("NOT TESTED, because %s is missing: %s", program, what)
}

// findPostgres adds the folder of PostgreSQL's programs to the PATH of this process.
var findPostgres = sync.OnceFunc(func() {
	if bin, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		_ = os.Setenv("PATH", os.Getenv("PATH")+":"+strings.TrimSpace(string(bin)))
	}
})

// NeedPostgres is Need for programs that may stand where PostgreSQL is installed.
func NeedPostgres(t *testing.T, what string, programs ...string) {
	t.Helper()
	findPostgres()
	for _, program := range programs {
		Need(t, program, what)
	}
}
