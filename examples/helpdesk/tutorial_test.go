package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/porttest"
)

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

// TestTutorial does what docs/tutorial.md says: each step compiles, and what it runs prints what the page
// shows.
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
	source := must(os.ReadFile(filepath.Join(l.dir, name)))
	text := string(source)
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
