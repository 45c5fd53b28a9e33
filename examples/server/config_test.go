package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pelletier/go-toml/v2"
)

// printed runs the server with -print-config.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	return does(t, append(args, "-print-config")...)
}

// What -print-config prints is a configuration file that says the same.
func TestPrintedConfigIsAConfig(t *testing.T) {
	is := is.New(t)
	usual := printed(t)
	is.True(strings.Contains(usual, "db = 'svc.db'\nkeys = 'svc.db.keys'\naddr = '127.0.0.1:8080'\n"))
	is.Equal(printed(t, "-config", writeFile(t, "c.toml", usual)), usual)
	is.Equal(printed(t, "-config", writeFile(t, "c.toml", "")), usual)

	t.Setenv("TEST_WORD", "Hunter2Secret")
	file := writeFile(t, "c.toml", `
		db = "postgres://u:${TEST_WORD}@h/d?sslpassword=Hunter2Secret"
		bundle = "/a/${TEST_WORD}/${TEST_WORD}.json"
		[http]
		read_timeout = "1m30s"
		hide_access = true
		[sources]
		allow_origins = ["http://${TEST_WORD}:1"]
		allow_cidrs = ["10.0.0.0/8"]
		limits.redirects = -1
		[templates]
		local_edits = "merge"`)
	text := printed(t, "-config", file)
	for _, line := range []string{
		"db = 'postgres://u:PASSWORD@h/d?sslpassword=PASSWORD'\n", "keys = 'svc.keys'\n",
		"bundle = '/a/Hunter2Secret/Hunter2Secret.json'\n", "read_timeout = '1m30s'\n", "hide_access = true\n",
		"allow_origins = ['http://Hunter2Secret:1']\n", "redirects = -1\n", "local_edits = 'merge'\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the configuration lacks %s:\n%s", line, text)
		}
	}
	is.Equal(printed(t, "-config", writeFile(t, "c.toml", text)), text)
	is.True(strings.Contains(printed(t, "-db", "postgres://u:Hunter2Secret%zz@h/d"), "db = 'postgres://URL'\n"))
}

func TestFlagsWinOverTheFile(t *testing.T) {
	is := is.New(t)
	file := writeFile(t, "c.toml", `db = "f.db"
		addr = "127.0.0.1:1"
		keys = "f.keys"
		bundle = "f.json"
		sources.allow_origins = ["http://127.0.0.1:1"]`)
	c := parsed(t, "-config", file)
	is.Equal([]string{c.DB, c.Addr, c.Keys, c.Bundle}, []string{"f.db", "127.0.0.1:1", "f.keys", "f.json"})
	c = parsed(t, "-addr", "127.0.0.1:2", "-config", file, "-db", "g.db", "-keys", "g.keys", "-bundle", "",
		"-allow-source", "http://127.0.0.1:2", "-allow-source", "http://127.0.0.1:3")
	is.Equal([]string{c.DB, c.Addr, c.Keys, c.Bundle}, []string{"g.db", "127.0.0.1:2", "g.keys", ""})
	is.Equal(c.Sources.AllowOrigins, []string{"http://127.0.0.1:2", "http://127.0.0.1:3"})
	is.Equal(parsed(t, "export", "-config", file).DB, "f.db")
	is.Equal(parsed(t, "-db", "${HOME}").DB, "${HOME}") // a shell expands flags
}

func TestWrongConfig(t *testing.T) {
	for text, want := range map[string]string{
		"db = 5":                                   "c.toml:1: db: cannot decode TOML integer into string",
		"\ndbx = 'a'\n[http]\nprefixx = 'b'":       "c.toml:2: dbx is not a key of the configuration\nc.toml:4: http.prefixx is not",
		"db = 'a'\naddr = ':1'\ndb = 'a'":          "c.toml:3: db is in line 1 already: remove one",
		"db = 'a'\nDB = 'b'":                       "c.toml:2: DB is not a key: write db",
		"[log]\nLevel = 'info'":                    "c.toml:2: log.Level is not a key: write log.level",
		"[log]\nlevel = 'info'\n[tls]\n[log]":      "c.toml:4: log is in line 1 already",
		"tls = {cert_file = 'a', cert_file = 'b'}": "c.toml:1: tls: key cert_file is already defined",
		"addr = ':1'\n\ndb = ['a']\nbundle = 'x'":  "c.toml:3: db: cannot decode TOML array into string",
		"db = 'a'\n[[http]]\nprefix = '/a'":        "c.toml:2: http: cannot decode TOML array table",
		"db = 'a'\naddr = 'b":                      "c.toml:2: ",
		"db = ${HOME}":                             "c.toml:1: ",
		"db = '${TEST_MISSING}'":                   "c.toml:1: db needs the variable TEST_MISSING of the environment, which is not set",
		"db = 'a${'":                               "c.toml:1: db has a bad reference",
		"db = '${A-b}'":                            "c.toml:1: db has a bad reference",
		"sources.allow_cidrs=['${TEST_MISSING}']":  "c.toml:1: sources.allow_cidrs needs the variable",
		"db = ''":                                         "c.toml:1: db must name",
		"db = 'mysql://u:Hunter2Secret@h/d'":              "c.toml:1: db must be the path",
		"addr = '8080'":                                   "c.toml:1: addr must be HOST:PORT",
		"[http]\nprefix = '/'":                            "c.toml:2: http.prefix must be a path",
		"[http]\nprefix = '/healthz'":                     "c.toml:2: http.prefix must be a path",
		"[http]\nprefix = '/a/{b}'":                       "c.toml:2: http.prefix must be a path",
		"[http]\npublic_url = 'https://u:p@h/'":           "c.toml:2: http.public_url",
		"[http]\nmax_body = 0":                            "c.toml:2: http.max_body must be greater",
		"[http]\nmax_body = '1'":                          "c.toml:2: http.max_body: ",
		"[http]\nread_timeout = '5'":                      "c.toml:2: http.read_timeout must be a time",
		"[http]\nread_timeout = '-5s'":                    "c.toml:2: http.read_timeout must be longer",
		"http = {\"read_timeout\" = 'x'}":                 "c.toml:1: http.read_timeout must be a time",
		"[tls]\ncert_file = 'a'":                          "c.toml:1: tls.key_file is needed",
		"tls.key_file = 'a'":                              "c.toml: tls.cert_file is needed with tls.key_file",
		"log.level = 'loud'":                              "c.toml:1: log.level must be one of debug, info, warn, error",
		"log.format = ''":                                 "c.toml:1: log.format must be one of text, json",
		"templates.local_edits = ''":                      "c.toml:1: templates.local_edits must be one of",
		"templates.cached = -2":                           "c.toml:1: templates.cached must be greater than 0, or -1",
		"sources.allow_origins = ['http://h/path']":       "c.toml:1: sources.allow_origins must have origins like",
		"sources.allow_cidrs = ['10.0.0.1']":              "c.toml:1: sources.allow_cidrs must have networks",
		"api_keys.user_prefix = 'svc'":                    "c.toml:1: api_keys.user_prefix must be",
		"api_keys.user_prefix = 'svcs_'":                  "must not start with one another",
		"postgres.synchronous_commit = 'x'":               "c.toml:1: postgres.synchronous_commit must be one of on,",
		"postgres.timeout = 'x'":                          "c.toml:1: postgres.timeout must be a time",
		"sources.limits.redirects = 99999999999999999999": "c.toml:1: sources.limits.redirects: ",
	} {
		file := writeFile(t, "c.toml", text)
		err := run(t.Context(), []string{"-config", file, "-print-config"}, &output{}, &output{})
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		said := strings.ReplaceAll(err.Error(), filepath.Dir(file)+"/", "")
		if !strings.Contains(said, want) || strings.Contains(said, "Hunter2Secret") {
			t.Errorf("%q: got %q, want %q", text, said, want)
		}
		if exitCode(err, &output{}) != 1 {
			t.Errorf("%q: does not exit with 1", text)
		}
	}
	err := run(t.Context(), []string{"-config", "none.toml"}, &output{}, &output{})
	is.New(t).True(errors.Is(err, os.ErrNotExist))
	err = run(t.Context(), []string{"-config", writeFile(t, "c.toml", "addr = ''"), "-addr", "x"}, &output{}, &output{})
	is.New(t).True(strings.HasPrefix(err.Error(), "-addr must be")) // the flag is at fault, not the file
}

// Every key has its row in docs/options.md, with its default.
func TestConfigIsDocumented(t *testing.T) {
	is := is.New(t)
	var tree map[string]any
	text := printed(t)
	is.NoErr(toml.Unmarshal([]byte(text), &tree))
	page, err := os.ReadFile("../../docs/options.md")
	is.NoErr(err)
	_, section, _ := strings.Cut(string(page), "## The configuration file of `examples/server`\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var have []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| `([^`]*)` \\|").FindAllStringSubmatch(section, -1) {
		have = append(have, row[1]+" = "+row[2])
	}
	slices.Sort(have)
	is.Equal(have, keysIn(tree, ""))
}

// keysIn returns the keys of a tree with their values, as in a table of the documentation.
func keysIn(tree map[string]any, table string) (all []string) {
	for name, value := range tree {
		if inner, is := value.(map[string]any); is {
			all = append(all, keysIn(inner, table+name+".")...)
			continue
		}
		text, _ := toml.Marshal(map[string]any{"x": value})
		_, shown, _ := strings.Cut(strings.TrimSpace(string(text)), " = ")
		all = append(all, table+name+" = "+strings.ReplaceAll(shown, "'", `"`))
	}
	slices.Sort(all)
	return all
}
