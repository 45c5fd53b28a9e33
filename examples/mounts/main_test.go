package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/porttest"
)

// printed is a line that the program prints.
var printed = regexp.MustCompile(`^curl -sS -H '(Authorization): (Bearer \S+)' (http://\S+)$`)

func TestProgramRuns(t *testing.T) {
	for name := range hosts {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			address := porttest.Free(t)
			program := exec.CommandContext(t.Context(), os.Args[0])
			program.Env = append(os.Environ(), "SVC_EXAMPLE_MOUNTS="+name, "ADDR="+address, "GIN_MODE=release")
			stdout := must(program.StdoutPipe())
			is.NoErr(program.Start())
			defer func() { _, _ = program.Process.Kill(), program.Wait() }()
			lines := bufio.NewScanner(stdout)
			for _, part := range []string{"user ada\n", `"api_key_prefix":"svcu_`} {
				is.True(lines.Scan())
				line := printed.FindStringSubmatch(lines.Text())
				is.Equal(len(line), 4)
				is.True(strings.Contains(body(t, line[3], line[1], line[2]), part))
			}
		})
	}
}

// body repeats a request until the server answers.
func body(t *testing.T, url, header, value string) string {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), "GET", url, nil))
	request.Header.Set(header, value)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			defer answer.Body.Close()
			return string(must(io.ReadAll(answer.Body)))
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// The host serves its own pages; one of them is only for callers that svc knows.
func TestPages(t *testing.T) {
	for name, with := range hosts {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newSite(t, mount{host: with})
			for target, want := range map[string]string{"/": "the host's own page\n", "/whoami": "user admin\n"} {
				got := s.ask("GET", target, bearer, "")
				is.Equal(got.status, 200)
				is.Equal(got.body, want)
			}
			is.Equal(s.ask("GET", "/", "", "").status, 200)
			is.Equal(s.ask("GET", "/whoami", "", "").status, 401)
			is.Equal(s.ask("GET", "/nothing", "", "").status, 404)
			is.Equal(s.ask("GET", "/ext/svcs", "", "").status, 404)
		})
	}
}
