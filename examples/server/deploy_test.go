package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/slow"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
	if err := json.Unmarshal([]byte(found[1]), &args); err != nil {
		t.Fatal(err)
	}
	return args
}

// The Containerfile builds a program without C, and starts and asks it with arguments that it takes.
func TestContainerfile(t *testing.T) {
	if os.Getenv("CI") != "true" {
		t.Skip("NOT TESTED: deploy/Containerfile, whose build compiles all without cgo; set CI=true")
	}
	is := is.New(t)
	file := deployed(t, "Containerfile")
	build := regexp.MustCompile(`(?m)^RUN (.*go build .*)$`).FindStringSubmatch(file)[1]
	out := t.TempDir()
	sh(t, strings.ReplaceAll(build, "/out/", out+"/"))
	binary := filepath.Join(out, "server")
	is.True(strings.Contains(sh(t, "go version -m "+binary), "CGO_ENABLED=0"))
	is.True(strings.Contains(sh(t, "env -i "+binary+" -help"), "server health [flags]"))

	is.Equal(instruction(t, file, "ENTRYPOINT"), []string{"/server"})
	serve := arguments(t, "container.toml", instruction(t, file, "CMD")...)
	is.Equal([]string{serve.DB, serve.Addr}, []string{"/data/svc.db", "0.0.0.0:8080"})
	health := instruction(t, file, `HEALTHCHECK --\S+ --\S+ CMD`)
	is.Equal(health[:2], []string{"/server", "health"})
	is.Equal(arguments(t, "container.toml", health[1:]...).Addr, serve.Addr)
	is.True(strings.Contains(file, "\nEXPOSE 8080\n"))
	is.True(strings.Contains(file, "COPY examples/server/deploy/container.toml /etc/svc/server.toml\n"))

	s := startServer(t, "-config", filepath.Join("deploy", "container.toml"), "-db", newDB(t))
	ask := exec.CommandContext(t.Context(), binary, "health", "-config", filepath.Join("deploy", "container.toml"), "-addr", strings.TrimPrefix(s.base, "http://"))
	ask.Env = []string{} // as in the container
	text, err := ask.CombinedOutput()
	is.NoErr(err)
	is.Equal(string(text), "")
}

// systemd accepts the unit, and finds that it leaves the server little to attack.
func TestUnit(t *testing.T) {
	is := is.New(t)
	unit := deployed(t, "svc.service")
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(unit)
	c := arguments(t, "server.toml", strings.Fields(start[2])...)
	is.True(strings.HasPrefix(c.DB, "/var/lib/svc/") && strings.HasPrefix(c.Keys, "/var/lib/svc/"))
	is.True(strings.Contains(unit, "\nStateDirectory=svc\n"))

	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		missing(t, "systemd-analyze is missing: the unit deploy/svc.service")
	}
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

// The README's line installs the program, inside the workspace and without it.
func TestInstall(t *testing.T) {
	slow.Test(t, "the installation")
	is := is.New(t)
	const line = "go -C examples install ./server"
	for _, page := range []string{"../../README.md", "../../docs/operations.md", "deploy/README.md"} {
		text, err := os.ReadFile(page)
		is.NoErr(err)
		is.True(strings.Contains(string(text), line))
	}
	for _, work := range []string{"", "off"} {
		bin := t.TempDir()
		sh(t, line, "GOBIN="+bin, "GOWORK="+work)
		is.True(strings.HasPrefix(sh(t, filepath.Join(bin, "server")+" -help"), "Usage:\n"))
	}
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
