package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
)

// places makes databases that do not exist yet, or are empty.
var places = map[string]func(t *testing.T) string{
	"SQLite": newDB,
	"PostgreSQL": func(t *testing.T) string {
		longtest.Test(t, "this with PostgreSQL")
		return pgschema.Migrated(t)
	},
}

// inEach runs a test with the flags for a new database of each kind, of which the first two name it.
func inEach(t *testing.T, test func(t *testing.T, flags []string)) {
	for kind, place := range places {
		t.Run(kind, func(t *testing.T) {
			test(t, []string{"-db", place(t), "-keys", filepath.Join(t.TempDir(), "svc.keys")})
		})
	}
}

// does runs a command that must succeed, and returns what it prints.
func does(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr output
	err := run(t.Context(), args, &stdout, &stderr)
	if _, differs := errors.AsType[silent](err); err != nil && !differs {
		t.Fatalf("%v: %v", args, err)
	}
	expect.Equal(t, args, stderr.String(), "")
	return stdout.String()
}

// fails runs a command that must say why it fails, and exit with 1.
func fails(t *testing.T, why string, args ...string) {
	t.Helper()
	exits(t, 1, why, args...)
}

// exits runs a command that must say why it fails and nothing else, in one line unless why has more, show no
// password, and exit with a code.
func exits(t *testing.T, code int, why string, args ...string) {
	t.Helper()
	var stdout, stderr output
	err := run(t.Context(), args, &stdout, &stderr)
	said, logs := fmt.Sprint(err), args[0][0] == '-' // as a server does
	good := err != nil && exitCode(err, &output{}) == code && strings.Contains(said, why)
	good = good && !strings.Contains(said, "Hunter2") && strings.Contains(said, "\n") == strings.Contains(why, "\n")
	good = good && stdout.String() == "" && (stderr.String() == "" || logs)
	expect.Holds(t, good, args, ": got ", err, &stdout, &stderr, ", want ", code, " ", why)
}

var soon = programtest.Soon

// desk is what the policy of the support desk sets.
const desk = ` with llm_model "slow-and-thorough", recall_budget "high", recall_max_tokens 4096, retain_every_n_turns 3, retain_tags ["team:desk"]`

// The access of a server goes to a file, and from the file to another server, while both run.
func TestAccessFromServerToServer(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, flags []string) {
		is, db := parallel(t), flags[:2]
		staging, production := newDB(t), startServer(t, flags...)
		first := startServer(t, "-db", staging)
		first.wants(t, 201, first.key(), "POST", "/ext/svc/users", `{"id": "carol"}`)
		first.wants(t, 201, first.key(), "POST", "/ext/svc/groups/support-desk/members", `{"user_id": "carol"}`)
		first.wants(t, 204, first.key(), "DELETE", "/ext/svc/users/bob", "")
		bob := issueKey(t, append(flags, "-user", "bob")...)
		production.wants(t, 200, bob, "GET", "/ext/svc/me", "")

		exported := does(t, "export", "-db", staging)
		file := writeFile(t, "staging.json", exported)
		before := does(t, append([]string{"export"}, db...)...)
		is.True(strings.Contains(exported, `"id":"carol"`) && !strings.Contains(before, `"id":"carol"`))
		words := does(t, append(append([]string{"diff"}, db...), "-prune", file)...)
		is.Equal(strings.Split(strings.TrimSuffix(words, "\n"), "\n"), []string{
			"user carol gains bank:recall on support" + desk, "user carol gains bank:recall on support::*" + desk,
			"user carol gains bank:retain on support" + desk, "user carol gains bank:retain on support::*" + desk,
			"user carol has bank:retain on support::archive as before, unlike the wider patterns",
		})
		is.Equal(does(t, append([]string{"export"}, db...)...), before) // a diff writes nothing

		is.Equal(does(t, append(append([]string{"apply"}, db...), "-prune", file)...), "")
		is.Equal(does(t, append([]string{"export"}, db...)...), exported)
		is.Equal(does(t, append(append([]string{"diff"}, db...), "-prune", file)...), "Nothing changes in what anybody may do.\n")
		is.Equal(does(t, append(append([]string{"diff"}, db...), "-json", "-prune", file)...), "")
		production.wants(t, 200, production.key(), "GET", "/ext/svc/users/carol", "")
		is.True(soon(func() bool {
			status, _ := production.get(t, bob, "/ext/svc/me")
			return status == 401
		}))
		_, events := production.get(t, production.key(), "/ext/svc/admin/events?actor_kind=host&actor=server+apply")
		is.True(strings.Contains(events, `"access.removed"`) && strings.Contains(events, `"api_key.revoked"`))
	})
}

// The exit code of a diff tells what differs. The text says how many differences it leaves out.
func TestExitCodesOfADiff(t *testing.T) {
	turned, gained := []svc.AccessTest{{UserID: "u"}}, []svc.StrategyDiff{{Bank: "b"}}
	for _, tc := range []struct {
		diff   svc.AccessDiff
		asJSON bool
		want   error
		says   string
	}{
		{svc.AccessDiff{}, false, nil, ""},
		{svc.AccessDiff{Turned: turned}, false, silent(1), ""},
		{svc.AccessDiff{Turned: turned, Strategies: gained}, false, silent(2), ""},
		{svc.AccessDiff{Turned: turned, Omitted: 7}, false, silent(2), "7 more differences are not listed.\n"},
		{svc.AccessDiff{Omitted: 7}, true, silent(2), `{"omitted":7}` + "\n"},
	} {
		var out strings.Builder
		is.New(t).Equal(printDiff(&out, tc.diff, tc.asJSON), tc.want)
		is.New(t).True(strings.Contains(out.String(), tc.says))
	}
}

// What has no end is refused: whatever reads a file or the standard input has the limit of readAll.
func TestFilesHaveALimit(t *testing.T) {
	sources, _ := filepath.Glob("*.go")
	for _, file := range sources {
		text, _ := os.ReadFile(file)
		for _, endless := range []string{"os.ReadFile(", "io.ReadAll("} {
			may := file == "input.go" || file == "mounted.go" || strings.HasSuffix(file, "_test.go")
			expect.Holds(t, may || !strings.Contains(string(text), endless), file, " without ", endless)
		}
	}
	longtest.Test(t, "that files have a limit")
	err := run(t.Context(), []string{"lint", "/dev/zero"}, io.Discard, io.Discard)
	expect.Holds(t, err != nil && strings.Contains(err.Error(), "/dev/zero has more than 256 MiB"), err)
}
