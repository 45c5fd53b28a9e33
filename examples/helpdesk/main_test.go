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
	method := "GET"
	if data != "" {
		method = "POST"
	}
	r, err := http.NewRequestWithContext(t.Context(), method, p.variables["URL"]+path, strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
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
	jar, err := cookiejar.New(nil)
	is.NoErr(err)
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
	d, err := openDesk(t.Context(), filepath.Join(t.TempDir(), "helpdesk.db"))
	is.NoErr(err)
	defer func() { is.NoErr(d.close()) }()
	_, err = d.signUp(t.Context(), "ada", "no-such-team", svc.NewAPIKey{})
	is.True(errors.Is(err, svc.ErrNotFound))
	_, err = d.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{ScopingPolicyID: "no-such-policy"})
	is.True(errors.Is(err, svc.ErrInvalid))
	_, err = d.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{})
	is.NoErr(err)
	_, err = d.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{})
	is.True(err != nil)
}

// A second start keeps people in their teams.
func TestSecondStart(t *testing.T) {
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "helpdesk.db")
	first, err := openDesk(t.Context(), file)
	is.NoErr(err)
	key, err := first.signUp(t.Context(), "ada", "billing", svc.NewAPIKey{})
	is.NoErr(err)
	is.NoErr(first.close())
	second, err := openDesk(t.Context(), file)
	is.NoErr(err)
	defer func() { is.NoErr(second.close()) }()
	who, err := second.service.Authenticate(t.Context(), string(key))
	is.NoErr(err)
	may, err := second.service.May(t.Context(), who, actionRead, "billing")
	is.NoErr(err)
	is.True(may)
}

// What needs svc takes at most 200 lines, without comments and imports.
func TestStepsAreShort(t *testing.T) {
	is := is.New(t)
	steps, err := filepath.Glob("step*.go")
	is.NoErr(err)
	lines := 0
	for _, step := range steps {
		source, err := os.ReadFile(step)
		is.NoErr(err)
		_, code, _ := strings.Cut(string(source), "\n)\n") // after the imports
		if step == "step1_rules.go" {
			code = string(source)
		}
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	is.True(len(steps) == 5 && lines > 100 && lines <= 200)
}
