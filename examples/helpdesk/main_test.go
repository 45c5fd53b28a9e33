package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
)

// printed are the lines that the program prints, until it prints Ada's page.
type printed struct {
	variables map[string]string
	tries     [][]string // whose key, data or "", the path, the status
	page      string
}

var tryLine = regexp.MustCompile(`^curl -sS -H "Authorization: Bearer \$(\w+)" (?:-d '?([^'$]*?)'? )?\$URL(\S+) # (\d+)`)

func start(t *testing.T) printed {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", in); in.Close() }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p := printed{variables: map[string]string{}}
	for lines := bufio.NewScanner(out); p.page == "" && lines.Scan(); {
		if try := tryLine.FindStringSubmatch(lines.Text()); try != nil {
			p.tries = append(p.tries, try[1:])
		} else if name, value, is := strings.Cut(lines.Text(), "="); is {
			p.variables[name] = value
		}
		_, p.page, _ = strings.Cut(lines.Text(), "Ada's page: ")
	}
	return p
}

// ask sends a POST of data, or a GET without data, and returns the status and the body.
func (p printed) ask(t *testing.T, client *http.Client, bearer, data, path string) (int, string) {
	t.Helper()
	method := map[bool]string{true: "GET", false: "POST"}[data == ""]
	headers := []string{"Content-Type: application/x-www-form-urlencoded"}
	if bearer != "" {
		headers = append(headers, "Authorization: Bearer "+bearer)
	}
	answer, text := programtest.Ask(t, client, method, p.variables["URL"]+path, data, headers...)
	return answer.StatusCode, text
}

// followsNone is a client that shows redirections.
func followsNone() *http.Client {
	return &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Every request that the program prints has the status that it prints.
func TestWhatToTry(t *testing.T) {
	is := is.New(t)
	p := start(t)
	is.Equal(len(p.tries), strings.Count(tries, "\n")+1)
	bodies := map[string]string{}
	for _, try := range p.tries {
		status, body := p.ask(t, followsNone(), p.variables[try[0]], try[1], try[2])
		if try[3] != strconv.Itoa(status) {
			t.Errorf("%q: %d %s", try, status, body)
		}
		if try[1] == "" && status == 200 {
			bodies[try[0]] = body
		}
	}
	is.Equal(bodies["ADA"], `[{"answer":"","id":1,"priority":"low","subject":"Paid twice","text":""}]`+"\n")
	is.Equal(bodies["WALL"], `[{"id":1,"subject":"Paid twice"}]`+"\n")

	for _, tc := range []struct{ who, data, path, status string }{
		{"CARL", "subject=x&priority=highest", "/queues/billing/tickets", "400"},
		{"CARL", "text=x", "/queues/billing/tickets", "400"},
		{"ADA", "text=x", "/queues/billing/tickets/2/answer", "404"},
		{"LENA", "subject=x&priority=urgent", "/queues/network/tickets", "200"},
		{"LENA", "text=x", "/queues/billing/tickets/2/answer", "404"}, // the ticket of another queue
		{"CARL", "", "/", "200"},
		{"", "", "/", "401"},
	} {
		status, body := p.ask(t, followsNone(), p.variables[tc.who], tc.data, tc.path)
		if strconv.Itoa(status) != tc.status {
			t.Errorf("%+v: %d %s", tc, status, body)
		}
	}
	_, body := p.ask(t, followsNone(), p.variables["LENA"], "", "/queues/billing/tickets")
	is.Equal(body, `[{"answer":"You have it back","customer":"carl","id":1,"priority":"low","subject":"Paid twice","text":""}]`+"\n")
}

// On the page, Ada sees the queue of her team alone, and answers in it.
func TestPage(t *testing.T) {
	is := is.New(t)
	p := start(t)
	is.True(strings.HasPrefix(p.page, p.variables["URL"]))
	_, _ = p.ask(t, followsNone(), p.variables["CARL"], "subject=<b>twice</b>", "/queues/billing/tickets")
	jar := must(cookiejar.New(nil))
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	status, page := p.ask(t, browser, "", "", strings.TrimPrefix(p.page, p.variables["URL"]))
	is.Equal(status, 200)
	is.True(strings.Contains(page, "<h3>&lt;b&gt;twice&lt;/b&gt;</h3>"))
	is.Equal(strings.Count(page, "<h2>"), 1)
	action := regexp.MustCompile(`action="([^"]+)"`).FindStringSubmatch(page)
	status, page = p.ask(t, browser, "", "text=done", action[1])
	is.Equal(status, 200) // after the redirection
	is.True(strings.Contains(page, "Answer: done"))
	status, _ = p.ask(t, browser, "", "text=no", "/queues/network/tickets/1/answer")
	is.Equal(status, 403)
	status, _ = p.ask(t, followsNone(), "", "", "/sign-in/unknown")
	is.Equal(status, 303)
}

// A sign-up that fails leaves nothing.
func TestSignUpIsWhole(t *testing.T) {
	is := is.New(t)
	d := must(openDesk(t.Context(), filepath.Join(t.TempDir(), "helpdesk.db")))
	defer func() { is.NoErr(d.close()) }()
	_, err := d.signUp(t.Context(), "ada", "no-such-team", svc.NewAPIKey{})
	is.True(errors.Is(err, svc.ErrNotFound))
	_, err = d.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{ScopingPolicyID: "no-such-policy"})
	is.True(errors.Is(err, svc.ErrInvalid))
	must(d.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{}))
	_, err = d.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{})
	is.True(err != nil)
}

// A second start keeps people in their teams.
func TestSecondStart(t *testing.T) {
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "helpdesk.db")
	first := must(openDesk(t.Context(), file))
	key := must(first.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{}))
	is.NoErr(first.close())
	second := must(openDesk(t.Context(), file))
	defer func() { is.NoErr(second.close()) }()
	who := must(second.service.Authenticate(t.Context(), string(key)))
	is.True(must(second.service.May(t.Context(), who, actionRead, "billing")))
}

// What needs svc takes at most 200 lines, without comments and imports.
func TestStepsAreShort(t *testing.T) {
	steps := must(filepath.Glob("step*.go"))
	lines := 0
	for _, step := range steps {
		source := must(os.ReadFile(step))
		_, code, _ := strings.Cut(string(source), "\n)\n") // after the imports
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	is.New(t).True(len(steps) == 5 && lines > 100 && lines <= 200)
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
