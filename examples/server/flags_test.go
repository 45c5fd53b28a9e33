package main

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/matryer/is"
)

func TestParse(t *testing.T) {
	is := is.New(t)
	o, err := parse(nil)
	is.NoErr(err)
	is.Equal(o, options{addr: "127.0.0.1:8080", db: "svc.db", keys: "svc.db.keys"})

	o, err = parse([]string{"-addr", ":0", "-db", "d", "-keys", "k", "-bundle", "b",
		"-allow-source", "http://127.0.0.1:9999", "-allow-source", "https://git.corp.example"})
	is.NoErr(err)
	is.Equal(o, options{addr: ":0", db: "d", keys: "k", bundle: "b",
		allowSources: []string{"http://127.0.0.1:9999", "https://git.corp.example"}})

	o, err = parse([]string{"key", "-db", "d", "-service-account", "ci"})
	is.NoErr(err)
	is.Equal(o, options{db: "d", keys: "d.keys", issueFor: svc.Identity{Kind: svc.KindServiceAccount, ID: "ci"}})

	o, err = parse([]string{"export", "-db", "d"})
	is.NoErr(err)
	is.Equal(o, options{db: "d", keys: "d.keys", access: "export"})
	o, err = parse([]string{"apply", "-prune", "-"})
	is.NoErr(err)
	is.Equal(o, options{db: "svc.db", keys: "svc.db.keys", access: "apply", file: "-", prune: true})
	o, err = parse([]string{"diff", "-json", "-db", "postgres://db/svc", "b.json"})
	is.NoErr(err)
	is.Equal(o, options{db: "postgres://db/svc", keys: "svc.keys", access: "diff", file: "b.json", json: true})

	o, err = parse([]string{"copy", "-from", "a", "-to", "postgres://db/svc"})
	is.NoErr(err)
	is.Equal(o, options{move: "copy", from: "a", to: "postgres://db/svc"})
	for _, command := range []string{"backup", "restore"} {
		o, err = parse([]string{command, "-keys", "k", "-db", "d", "f"})
		is.NoErr(err)
		is.Equal(o, options{move: command, db: "d", keys: "k", file: "f"})
	}

	for _, db := range []string{"postgres://u:p@db/svc", "postgresql://db/svc?sslmode=disable"} {
		o, err = parse([]string{"-db", db})
		is.NoErr(err)
		is.Equal(o, options{addr: "127.0.0.1:8080", db: db, keys: "svc.keys"})
		o, err = parse([]string{"key", "-db", db, "-keys", "k", "-user", "a"})
		is.NoErr(err)
		is.Equal(o, options{db: db, keys: "k", issueFor: svc.Identity{Kind: svc.KindUser, ID: "a"}})
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
		"backup":                         "name the FILE of the backup",
		"backup -keys k":                 "name the FILE of the backup",
		"backup b -db d":                 "flags come first",
		"restore -db mysql://h/d b":      "postgres://",
		"restore":                        "name the FILE of the backup",
	} {
		_, err := parse(strings.Fields(line))
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

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-help"}, {"-h"}, {"--help"}, {"key", "-help"}, {"migrate", "-h"}, {"export", "-h"}, {"apply", "-help"}, {"diff", "-h"}, {"copy", "-h"}, {"backup", "-h"}, {"restore", "-help"}} {
		is := is.New(t)
		var stdout, stderr output
		is.NoErr(run(t.Context(), args, &stdout, &stderr))
		is.Equal(stdout.String(), usage)
		is.Equal(stderr.String(), "")
	}
}

func TestUsageNamesEveryFlag(t *testing.T) {
	var o options
	serve, key := serveFlags(&o), keyFlags(&o, new(string), new(string))
	for _, flags := range []*flag.FlagSet{serve, key, migrateFlags(&o), accessFlags(&options{access: "diff"}), copyFlags(&o), backupFlags(&o)} {
		flags.VisitAll(func(f *flag.Flag) {
			if !strings.Contains(usage, "-"+f.Name+" ") {
				t.Errorf("the usage does not name -%s", f.Name)
			}
		})
	}
}
