package main

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// parsed returns the call that a command line asks for.
func parsed(t *testing.T, args ...string) *call {
	t.Helper()
	of, args := find(args)
	c := &call{}
	if _, err := c.parse(of, args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return c
}

func TestParse(t *testing.T) {
	is := is.New(t)
	usual := defaults()
	usual.Keys, usual.flagged = "svc.db.keys", map[string]bool{}
	is.Equal(parsed(t).config, usual)

	c := parsed(t, "-addr", ":0", "-db", "d", "-keys", "k", "-bundle", "b",
		"-allow-source", "http://127.0.0.1:9999", "-allow-source", "https://git.corp.example")
	is.Equal([]string{c.Addr, c.DB, c.Keys, c.Bundle}, []string{":0", "d", "k", "b"})
	is.Equal(c.Sources.AllowOrigins, []string{"http://127.0.0.1:9999", "https://git.corp.example"})

	c = parsed(t, "key", "-db", "d", "-service-account", "ci")
	is.Equal([]string{c.DB, c.Keys}, []string{"d", "d.keys"})
	is.Equal(parsed(t, "apply", "-prune", "-").operand, "-")
	is.Equal(parsed(t, "diff", "-json", "-db", "postgres://db/svc", "b.json").operand, "b.json")
	for _, db := range []string{"postgres://u:p@db/svc", "postgresql://db/svc?sslmode=disable"} {
		is.Equal(parsed(t, "-db", db).Keys, "svc.keys")
		is.Equal(parsed(t, "key", "-db", db, "-keys", "k", "-user", "a").Keys, "k")
	}
}

func TestParseRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"-colour red":                    "-colour",
		"serve":                          `"serve"`,
		"-db svc.db key":                 `"key"`,
		"-db mysql://u:p@db/svc":         "postgres://",
		"-db https://db/svc":             "SQLite",
		"migrate":                        "-print",
		"migrate -print -keys k":         "-keys",
		"migrate -print up":              `"up"`,
		"-db=":                           "-db",
		"-addr":                          "-addr",
		"-allow-source example.com":      "http://127.0.0.1:9999",
		"-allow-source http://h/path":    "http://127.0.0.1:9999",
		"-allow-source http://u:p@h":     "http://127.0.0.1:9999",
		"-allow-source http://h:99999":   "http://127.0.0.1:9999",
		"-allow-source ftp://h":          "http://127.0.0.1:9999",
		"key":                            "exactly one",
		"key -user a -service-account b": "exactly one",
		"key -user a b":                  `"b"`,
		"key -addr :0 -user a":           "-addr",
		"export b.json":                  `"b.json"`,
		"export -prune":                  "-prune",
		"export -keys k":                 "-keys",
		"apply":                          "FILE",
		"apply -prune":                   "FILE",
		"apply b.json -prune":            "flags come first",
		"apply b.json c.json":            `"c.json"`,
		"apply -json b.json":             "-json",
		"apply -db mysql://u:p@db/svc b": "postgres://",
		"diff":                           "FILE",
		"diff - -json":                   "flags come first",
		"copy":                           "-from",
		"copy -from a":                   "-to",
		"copy -from a -to b c":           `"c"`,
		"copy -from a -to b -db c":       "-db",
		"copy -from mysql://h/d -to b":   "-from must be",
		"copy -from a -to file:///b":     "-to must be",
		"copy -from a -to file:b":        "-to must be",
		"copy -from a -to postgres:b":    "-to must be",
		"copy -from a -to host=h":        "-to must be",
		"copy -from a -to b?mode=ro":     "-to must be",
		"-db file:b":                     "./ in front",
		"keys":                           "keys rotate",
		"keys turn":                      "keys rotate",
		"lint -url http://h b.json":      "not both",
		"backup":                         "name the FILE",
		"backup -keys k":                 "name the FILE",
		"backup b -db d":                 "flags come first",
		"restore -db mysql://h/d b":      "postgres://",
		"restore":                        "name the FILE",
	} {
		err := run(t.Context(), strings.Fields(line), &output{}, &output{})
		if _, ok := errors.AsType[usageError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a usage error with %s", line, err, want)
		}
		if exitCode(err, &output{}) != 2 {
			t.Errorf("%s: does not exit with 2", line)
		}
		if strings.Contains(err.Error(), "u:p@db") {
			t.Errorf("%s: shows a password: %v", line, err)
		}
	}
}

// The help of the program names every command, and that of a command each of its flags. It opens nothing.
func TestHelp(t *testing.T) {
	said := func(args ...string) string {
		t.Helper()
		is := is.New(t)
		var stdout, stderr output
		is.NoErr(run(t.Context(), args, &stdout, &stderr))
		is.Equal(stderr.String(), "")
		return stdout.String()
	}
	whole := said("-help")
	for _, c := range subcommands {
		is := is.New(t)
		text := said(append(strings.Fields(c.name), "-h")...)
		is.Equal(text, said(append(strings.Fields(c.name), "--help")...))
		is.True(strings.Contains(whole, "  "+strings.TrimSpace("server "+c.name)+" [flags]"))
		c.flags().VisitAll(func(f *flag.Flag) {
			if !strings.Contains(text, "\n  -"+f.Name) || f.Usage == "" {
				t.Errorf("the help of %q does not explain -%s", c.name, f.Name)
			}
		})
		for line := range strings.Lines(text) {
			is.True(len(line) <= 101)
		}
	}
}
