package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, "SVC_EXAMPLE_SERVER", main) }

// output collects the output of a running server.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a server in this process.
type running struct {
	base           string // of its addresses
	stdout, stderr *output

	cancel context.CancelFunc
	ended  chan error
}

var listensOn = regexp.MustCompile(`svc listens on (https?://\S+)\n`)

// startServer runs the server on a free port until stop or the end of the test.
func startServer(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &running{stdout: &output{}, stderr: &output{}, cancel: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), s.stdout, s.stderr) }()
	t.Cleanup(func() { s.stop(t) })
	soon(func() bool {
		if found := listensOn.FindStringSubmatch(s.stdout.String()); found != nil {
			s.base = found[1]
		}
		return s.base != "" || len(s.ended) > 0
	})
	if s.base != "" {
		return s
	}
	t.Fatalf("the server did not start: %v\n%s", s.stop(t), s.stderr)
	return nil
}

// stop ends the server and returns the error of run. A second call returns nil.
func (s *running) stop(t *testing.T) error {
	t.Helper()
	s.cancel()
	select {
	case err, open := <-s.ended:
		if open {
			close(s.ended)
		}
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("the server does not stop")
		return nil
	}
}

var printedKey = regexp.MustCompile(`(?m)^KEY=(svcu_\w+)$`)

// key returns the key that the server printed, or "".
func (s *running) key() string {
	if found := printedKey.FindStringSubmatch(s.stdout.String()); found != nil {
		return found[1]
	}
	return ""
}

// client follows no redirects: the server must send none.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ask sends a request with a key, and returns the status and body of the answer.
func (s *running) ask(t *testing.T, key, method, path, body string) (int, string) {
	t.Helper()
	status, text, err := s.send(key, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

func (s *running) send(key, method, path, body string) (int, string, error) {
	request, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// wants sends a request whose answer must have a status, and returns the body.
func (s *running) wants(t *testing.T, status int, key, method, path, body string) string {
	t.Helper()
	got, text := s.ask(t, key, method, path, body)
	if got != status {
		t.Errorf("%s %s: %d, want %d: %s", method, path, got, status, text)
	}
	return text
}

func (s *running) get(t *testing.T, key, path string) (int, string) {
	t.Helper()
	return s.ask(t, key, "GET", path, "")
}

// newDB returns the path of a database that does not exist yet.
func newDB(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "svc.db")
}

// writeFile puts a file into a directory of its own.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	is.New(t).NoErr(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// command runs this binary as the server, as a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SVC_EXAMPLE_SERVER=1")
	return cmd
}

// parallel lets a test run beside others, and returns its checks.
func parallel(t *testing.T) *is.I {
	t.Parallel()
	return is.New(t)
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
