package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/testscript"
)

// recipe is a section of docs/howto/access-recipes.md.
type recipe struct {
	title  string
	blocks []codeBlock
}

// codeBlock are commands ("sh"), or the end of what the commands before it print ("text", "json").
type codeBlock struct{ language, text string }

var (
	heading = regexp.MustCompile(`(?m)^## \d+\. (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
)

// recipes reads the helpers and the recipes of docs/howto/access-recipes.md.
func recipes(t *testing.T) (helpers string, all []recipe) {
	t.Helper()
	page := string(must(os.ReadFile("../../docs/howto/access-recipes.md")))
	starts := heading.FindAllStringSubmatchIndex(page, -1)
	for i, at := range starts {
		end := len(page)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		all = append(all, recipe{page[at[2]:at[3]], codeBlocks(page[at[1]:end])})
	}
	if len(all) != 10 {
		t.Fatalf("docs/howto/access-recipes.md has %d recipes", len(all))
	}
	return codeBlocks(page[:starts[0][0]])[0].text, all
}

func codeBlocks(page string) (all []codeBlock) {
	for _, found := range fenced.FindAllStringSubmatch(page, -1) {
		all = append(all, codeBlock{found[1], found[2]})
	}
	return all
}

// cook runs the commands of a recipe in one shell, checks the output that the page shows, and returns
// the variables of the shell.
func (r recipe) cook(t *testing.T, dir, helpers string, s *running) map[string]string {
	t.Helper()
	const next = "--- next ---"
	script := "set -eu\nserver() { SVC_EXAMPLE_SERVER=1 '" + os.Args[0] + "' \"$@\"; }\nKEY=" + s.key() + "\n" +
		strings.ReplaceAll(helpers, "http://127.0.0.1:8080", s.base)
	var shown []codeBlock // what each block of commands prints; no text: the page does not say
	for _, b := range r.blocks {
		switch {
		case b.language == "sh":
			script += b.text + "echo '" + next + "'\n"
			shown = append(shown, codeBlock{})
		case shown[len(shown)-1].text == "":
			shown[len(shown)-1] = b
		default:
			t.Errorf("two outputs for one block: %s", b.text)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script+"set\n")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	printed := strings.Split(string(out), next+"\n")
	for i, want := range shown {
		if !want.ends(t, printed[i]) {
			t.Errorf("the commands print\n%s\nand not\n%s", printed[i], want.text)
		}
	}
	variables := map[string]string{}
	for line := range strings.Lines(printed[len(printed)-1]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		variables[name] = strings.Trim(value, "'")
	}
	return variables
}

// ends reports whether an output ends with a block of the page.
func (b codeBlock) ends(t *testing.T, output string) bool {
	t.Helper()
	if b.language != "json" {
		return strings.HasSuffix(output, b.text)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return compact(t, lines[len(lines)-1]) == compact(t, b.text)
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var to bytes.Buffer
	if err := json.Compact(&to, []byte(text)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return to.String()
}

// What docs/howto/access-recipes.md tells an operator to do works as it is written, on a server with the demo.
func TestRecipes(t *testing.T) {
	longtest.Parallel(t, "the commands of the documentation")
	needCurl(t)
	helpers, all := recipes(t)
	sections := testscript.Sections(t, "testdata/recipes.txt")
	is.New(t).Equal(len(sections), len(all))
	for i, r := range all {
		t.Run(r.title, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := startServer(t, "-db", filepath.Join(dir, "production.db"))
			c := kitchen{T: t, running: s, dir: dir}
			if before := prepare[i]; before != nil {
				c.held = before(c)
			}
			c.variables = r.cook(t, dir, helpers, s)
			c.variables["admin"], c.variables["held"] = s.key(), c.held
			for _, line := range sections[i].Lines {
				words := append(strings.SplitN(line, " ", 4), "")
				c.is(c.variables[words[0]], words[1], must(strconv.Atoi(words[2])), words[3])
			}
			if after := checks[i]; after != nil {
				after(c)
			}
		})
	}
}

// kitchen is where a recipe is tried.
type kitchen struct {
	*testing.T
	*running
	dir       string
	held      string            // a key that prepare has issued
	variables map[string]string // those of the recipe's shell
}

// is asks a server, and checks the status and a part of the answer.
func (c kitchen) is(key, path string, status int, part string) {
	c.Helper()
	if have, body := c.get(c.T, key, "/ext/svc"+path); have != status || !strings.Contains(body, part) {
		c.Errorf("GET %s: %d %s", path, have, body)
	}
}

// prepare has what must be so before a recipe, by its index.
var prepare = map[int]func(kitchen) string{
	2: func(c kitchen) string { return issueKey(c.T, "-db", c.db(), "-user", "alice") },
	9: func(c kitchen) string {
		staging := startServer(c.T, "-db", filepath.Join(c.dir, "staging.db"))
		for _, row := range [][2]string{{"/users", `{"id": "carol"}`}, {"/groups", `{"id": "new"}`}, {"/groups/staff/members", `{"user_id": "carol"}`}} {
			if status, text := staging.ask(c.T, staging.key(), "POST", "/ext/svc"+row[0], row[1]); status != 201 {
				c.Fatal(text)
			}
		}
		return ""
	},
}

func (c kitchen) db() string { return filepath.Join(c.dir, "production.db") }

// checks are what is so after some recipes, besides testdata/recipes.txt.
var checks = map[int]func(kitchen){
	6: func(c kitchen) {
		_, events := c.get(c.T, c.key(), "/ext/svc/admin/events?actor=admin")
		if n := strings.Count(events, `"number":`); n != 4 { // the user, the policy, the attachment, the member
			c.Errorf("%d events: %s", n, events)
		}
	},
	9: func(c kitchen) {
		if staging, production := does(c.T, "export", "-db", filepath.Join(c.dir, "staging.db")), does(c.T, "export", "-db", c.db()); staging != production {
			c.Errorf("staging has\n%s\nproduction\n%s", staging, production)
		}
	},
}

// block returns the text of a page between a line that starts with fence and the end of the block.
func block(t *testing.T, page, fence string) string {
	t.Helper()
	return programtest.Block(t, "../../"+page, fence)
}

// TestReadmeProgram: the program in the README is the one that examples/embed compiles, runs and tests.
func TestReadmeProgram(t *testing.T) {
	_, code, _ := strings.Cut(string(must(os.ReadFile("../embed/main.go"))), "package main\n")
	is.New(t).Equal(block(t, "README.md", "```go"), "package main\n"+code)
}

// TestReadmeCommands: the command to begin with stands in a block of its own, to be copied.
func TestReadmeCommands(t *testing.T) {
	is.New(t).Equal(block(t, "README.md", "operators](docs/howto/administration-page.md):\n\n```sh"), "go run ./examples/server\n")
}

// TestDocumentedAnswer: the server answers its first line to try as docs/reference/http.md shows.
func TestDocumentedAnswer(t *testing.T) {
	is := parallel(t)
	server := startServer(t, "-db", newDB(t))
	line := linesWith(block(t, "docs/reference/http.md", "`support`:\n\n```sh"), "curl")[0]
	is.Equal(line, strings.ReplaceAll(linesWith(server.stdout.String(), "curl")[0], server.base, "http://127.0.0.1:8080"))

	answer := paste(t, "KEY="+server.key(), strings.ReplaceAll(line, "http://127.0.0.1:8080", server.base))
	var want, got bytes.Buffer
	is.NoErr(json.Compact(&want, []byte(block(t, "docs/reference/http.md", "```json"))))
	is.NoErr(json.Compact(&got, []byte(answer)))
	is.Equal(got.String(), want.String())
}

func deployed(t *testing.T, name string) string {
	return string(must(os.ReadFile(filepath.Join("deploy", name))))
}

// arguments parses what a file of deploy calls the server with. The configuration is that of the same folder.
func arguments(t *testing.T, config string, args ...string) *call {
	t.Helper()
	for i, arg := range args {
		if arg == "/etc/svc/server.toml" {
			args[i] = filepath.Join("deploy", config)
		}
	}
	return parsed(t, args...)
}

// sh runs a line at the root of the repository.
func sh(t *testing.T, line string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// instruction returns the arguments of an instruction of the Containerfile, in JSON.
func instruction(t *testing.T, file, name string) (args []string) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\[.*\])$`).FindStringSubmatch(file)
	if found == nil {
		t.Fatalf("the Containerfile has no %s", name)
	}
	is.New(t).NoErr(json.Unmarshal([]byte(found[1]), &args))
	return args
}

// The Containerfile builds a program without C, and starts and asks it with arguments that it takes.
func TestContainerfile(t *testing.T) {
	if os.Getenv("CI") != "true" {
		t.Skip("NOT TESTED: deploy/Containerfile, whose build compiles all without cgo; set CI=true")
	}
	is := is.New(t)
	file := deployed(t, "Containerfile")
	out := t.TempDir()
	sh(t, "./release -rehearse v0.1.0 "+out)
	variables := regexp.MustCompile(`(?m)^ENV (.*)$`).FindStringSubmatch(file)[1]
	variables = strings.ReplaceAll(variables, "$GOPROXY", strings.TrimSpace(sh(t, "go env GOPROXY")))
	variables = strings.ReplaceAll(variables, "///proxy,", "//"+out+"/proxy,file://"+strings.TrimSpace(sh(t, "go env GOMODCACHE"))+"/cache/download,")
	env := append(strings.Fields(variables), "VERSION=v0.1.0", "GOWORK=off", "GOFLAGS=-modcacherw -trimpath "+os.Getenv("GOFLAGS"), "GOPATH="+out, "GOMODCACHE="+out+"/modules")
	for _, run := range regexp.MustCompile(`(?m)^RUN (.*)$`).FindAllStringSubmatch(file, -1) {
		sh(t, strings.ReplaceAll(run[1], "/out", out+"/image"), env...)
	}
	is.Equal(string(must(os.ReadFile(filepath.Join(out, "image", "container.toml")))), deployed(t, "container.toml"))
	binary := filepath.Join(out, "bin", "server")
	is.True(strings.Contains(sh(t, "go version -m "+binary), "svc/examples\tv0.1.0"))
	is.True(strings.Contains(sh(t, "go version -m "+binary), "CGO_ENABLED=0"))
	is.True(strings.Contains(sh(t, "env -i "+binary+" -help"), "server health [flags]"))

	is.Equal(instruction(t, file, "ENTRYPOINT"), []string{"/server"})
	serve := arguments(t, "container.toml", instruction(t, file, "CMD")...)
	is.Equal([]string{serve.DB, serve.Addr}, []string{"/data/svc.db", "0.0.0.0:8080"})
	health := instruction(t, file, `HEALTHCHECK --\S+ --\S+ CMD`)
	is.Equal(health[:2], []string{"/server", "health"})
	is.Equal(arguments(t, "container.toml", health[1:]...).Addr, serve.Addr)
	is.True(strings.Contains(file, "\nEXPOSE 8080\n"))

	s := startServer(t, "-config", filepath.Join("deploy", "container.toml"), "-db", newDB(t))
	ask := exec.CommandContext(t.Context(), binary, "health", "-config", filepath.Join("deploy", "container.toml"), "-addr", strings.TrimPrefix(s.base, "http://"))
	ask.Env = []string{} // as in the container
	is.Equal(string(must(ask.CombinedOutput())), "")
}

// systemd accepts the unit, and finds that it leaves the server little to attack.
func TestUnit(t *testing.T) {
	is := is.New(t)
	unit := deployed(t, "svc.service")
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(unit)
	c := arguments(t, "server.toml", strings.Fields(start[2])...)
	is.True(strings.HasPrefix(c.DB, "/var/lib/svc/") && strings.HasPrefix(c.Keys, "/var/lib/svc/"))
	is.True(strings.Contains(unit, "\nStateDirectory=svc\n"))

	programtest.Need(t, "systemd-analyze", "the unit deploy/svc.service")
	path := filepath.Join(t.TempDir(), "svc.service")
	check := func(text string, args ...string) (string, error) {
		t.Helper()
		is.NoErr(os.WriteFile(path, []byte(text), 0o600))
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", append(args, path)...).CombinedOutput()
		return string(out), err
	}
	installed := strings.Replace(unit, start[1], os.Args[0], 1)
	out, err := check(installed, "verify", "--man=no", "--recursive-errors=no")
	if err != nil || strings.Contains(out, path) {
		t.Errorf("%v: %s", err, out)
	}
	out, _ = check(strings.Replace(installed, "ProtectHome=yes", "ProtectHouse=yes", 1), "verify", "--man=no", "--recursive-errors=no")
	is.True(strings.Contains(out, "ProtectHouse")) // a mistake is found
	out, err = check(installed, "security", "--offline=yes", "--threshold=20", "--no-pager")
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The documented line installs the program, in a clone.
func TestInstall(t *testing.T) {
	longtest.Test(t, "the installation")
	is := is.New(t)
	const line = "go -C examples install ./server"
	for _, page := range []string{"../../docs/reference/commands.md", "deploy/README.md"} {
		is.True(strings.Contains(string(must(os.ReadFile(page))), line))
	}
	bin := t.TempDir()
	sh(t, line, "GOBIN="+bin)
	is.True(strings.HasPrefix(sh(t, filepath.Join(bin, "server")+" -help"), "Usage:\n"))
}

// Each command and flag that the README of deploy names is one.
func TestDeployReadme(t *testing.T) {
	is := is.New(t)
	for _, line := range regexp.MustCompile(`(?m)(?:-u svc |svc /)server (.*)$`).FindAllStringSubmatch(deployed(t, "README.md"), -1) {
		arguments(t, "server.toml", strings.Fields(line[1])...)
	}
	for name := range map[string]bool{"server.toml": true, "svc.service": true, "Containerfile": true} {
		is.True(strings.Contains(deployed(t, "README.md"), "examples/server/deploy/"+name))
	}
}
