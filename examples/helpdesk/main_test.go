package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/porttest"
)

// printed are the lines that the program prints, until it prints Ada's page.
type printed struct {
	variables map[string]string
	tries     [][]string // whose key, data or "", the path, the status
	page      string
}

var tryLine = regexp.MustCompile(`^curl -sS -H "Authorization: Bearer \$(\w+)" (?:-d '?([^'$]*?)'? )?\$URL(\S+) # (\d+)`)

func start(t *testing.T) printed {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", in); in.Close() }()
	t.Cleanup(func() {
		stop()
		must(0, <-ended)
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
	browser := &http.Client{Jar: must(cookiejar.New(nil)), Timeout: time.Minute}
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
		_, code, _ := strings.Cut(string(must(os.ReadFile(step))), "\n)\n") // after the imports
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

// lesson is a folder in which a reader follows docs/tutorial.md.
type lesson struct {
	*testing.T
	dir, address string
	server       *exec.Cmd
	changed      bool // since the server was built
}

var (
	tutorialBlock = regexp.MustCompile("(?m)(?:^<!-- (file: \\S+|run) -->\n)?^```(\\w+)\n((?s:.*?))^```$")
	hunk          = regexp.MustCompile(`(?m)^@@\n`)
)

// TestTutorial does what docs/tutorial.md says: each step compiles, and what it runs prints what the page shows.
func TestTutorial(t *testing.T) {
	longtest.Test(t, "docs/tutorial.md")
	page := must(os.ReadFile("../../docs/tutorial.md"))
	l := lesson{T: t, dir: t.TempDir(), address: porttest.Free(t)}
	steps := strings.Split(strings.ReplaceAll(string(page), "127.0.0.1:8084", l.address), "\n## ")
	ran := 0
	for _, step := range steps {
		blocks := tutorialBlock.FindAllStringSubmatch(step, -1)
		for i, b := range blocks {
			switch tag, language, text := b[1], b[2], b[3]; {
			case strings.HasPrefix(tag, "file: "):
				l.write(strings.TrimPrefix(tag, "file: "), text)
				l.changed = true
			case language == "diff":
				l.patch(text)
				l.changed = true
			case tag == "run":
				ran++
				l.serve()
				if got, want := l.shell(text), blocks[i+1][3]; got != want {
					t.Errorf("%s\nprints\n%s\nand not\n%s", text, got, want)
				}
			}
		}
		if l.changed {
			l.compile("vet")
		}
	}
	if ran != 5 {
		t.Errorf("%d blocks were run", ran)
	}
}

func (l *lesson) write(name, text string) {
	l.Helper()
	is.New(l).NoErr(os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600))
}

// patch applies a diff of the page: each part names whole lines that stand in the file exactly once.
func (l *lesson) patch(diff string) {
	l.Helper()
	first, rest, _ := strings.Cut(diff, "\n")
	name := strings.TrimPrefix(first, "--- ")
	text := string(must(os.ReadFile(filepath.Join(l.dir, name))))
	for _, part := range hunk.Split(rest, -1)[1:] {
		var before, after strings.Builder
		for line := range strings.Lines(part) {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}
			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}
		if strings.Count(text, before.String()) != 1 {
			l.Fatalf("%s has these lines not once:\n%s", name, before.String())
		}
		text = strings.Replace(text, before.String(), after.String(), 1)
	}
	l.write(name, text)
}

// compile runs go with the files of the folder, and the modules of this repository.
func (l *lesson) compile(args ...string) {
	l.Helper()
	files := must(filepath.Glob(filepath.Join(l.dir, "*.go")))
	if out, err := exec.CommandContext(l.Context(), "go", append(args, files...)...).CombinedOutput(); err != nil {
		l.Fatalf("%v:\n%s", err, out)
	}
}

// serve builds a changed program and starts it, in place of the one before.
func (l *lesson) serve() {
	l.Helper()
	if !l.changed {
		return
	}
	program := filepath.Join(l.dir, "helpdesk")
	l.compile("build", "-ldflags=-s -w", "-o", program)
	l.changed = false
	if l.server != nil {
		_ = l.server.Process.Kill()
		_ = l.server.Wait()
	}
	l.server = exec.CommandContext(l.Context(), program)
	l.server.Dir, l.server.Stderr = l.dir, os.Stderr
	l.server.Env = append(os.Environ(), "ADMIN_TOKEN=correct-horse")
	is.New(l).NoErr(l.server.Start())
	answers := exec.CommandContext(l.Context(), "curl", "-sS", "--retry", "60", "--retry-connrefused",
		"--retry-delay", "1", "-o", os.DevNull, "http://"+l.address)
	if out, err := answers.CombinedOutput(); err != nil {
		l.Fatalf("%v: %s", err, out)
	}
}

// shell runs commands and returns what they print. Variables and functions hold for the next ones.
func (l *lesson) shell(commands string) string {
	l.Helper()
	const restore = `set -eu; for f in ./*.sh; do [ -e "$f" ] && . "$f" >/dev/null; done; `
	const keep = "\nset | grep -E '^(URL|CARL|ADA)=' > 1.sh\n"
	functions := regexp.MustCompile(`(?m)^admin\(\) .*$`).FindString(commands)
	cmd := exec.CommandContext(l.Context(), "sh", "-c", restore+"\n"+commands+keep)
	cmd.Dir = l.dir
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		l.Fatalf("%v: %s\n%s", err, commands, failed.String())
	}
	if functions != "" {
		l.write("2.sh", fmt.Sprintln(functions))
	}
	return strings.TrimRight(string(out), "\n") + "\n"
}
