package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// onBoth runs a test on a SQLite file and on PostgreSQL.
func onBoth(t *testing.T, test func(t *testing.T, flags []string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, []string{"-db", newDB(t)}) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, onPostgres(t)) })
}

// does runs a command that must succeed, and returns what it prints.
func does(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr output
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if stderr.String() != "" {
		t.Errorf("%v: %s", args, &stderr)
	}
	return stdout.String()
}

// soon reports whether something happens within two seconds.
func soon(happens func() bool) bool {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if happens() {
			return true
		}
	}
	return false
}

// desk is what the policy of the support desk sets.
const desk = ` with llm_model "slow-and-thorough", recall_budget "high", recall_max_tokens 4096, retain_every_n_turns 3, retain_tags ["team:desk"]`

// The access of a server goes to a file, and from the file to another server, while both run.
func TestAccessFromServerToServer(t *testing.T) {
	onBoth(t, func(t *testing.T, flags []string) {
		is := is.New(t)
		db := flags[:2]
		staging, production := newDB(t), startServer(t, flags...)
		first := startServer(t, "-db", staging)
		status, _ := first.ask(t, first.key(), "POST", "/ext/svc/users", `{"id": "carol"}`)
		is.Equal(status, 201)
		status, _ = first.ask(t, first.key(), "POST", "/ext/svc/groups/support-desk/members", `{"user_id": "carol"}`)
		is.Equal(status, 201)
		status, _ = first.ask(t, first.key(), "DELETE", "/ext/svc/users/bob", "")
		is.Equal(status, 204)
		bob := issueKey(t, append(flags, "-user", "bob")...)
		status, _ = production.get(t, bob, "/ext/svc/me")
		is.Equal(status, 200)

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
		status, _ = production.get(t, production.key(), "/ext/svc/users/carol")
		is.Equal(status, 200)
		is.True(soon(func() bool {
			status, _ = production.get(t, bob, "/ext/svc/me")
			return status == 401
		}))
		_, events := production.get(t, production.key(), "/ext/svc/admin/events?actor_kind=host&actor=server+apply")
		is.True(strings.Contains(events, `"access.removed"`) && strings.Contains(events, `"api_key.revoked"`))
	})
}

func TestDiffInWords(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	is.NoErr(startServer(t, "-db", db).stop(t))
	file := writeFile(t, "b.json", `{
	  "groups": [{"id": "support-desk", "members": ["bob"]}],
	  "policies": [{"id": "staff-reads", "document": {"version": "2026-03-24", "statements": [
	    {"effect": "allow", "actions": ["bank:recall"], "banks": ["support"]}]}}],
	  "bank_policies": [{"bank_id": "support", "document": {"version": "2026-03-24", "default_strategy": "quick",
	    "public_access": {"default": {"actions": []}, "overrides": [{"scope": "topic", "value": "billing", "actions": ["bank:recall"]}]}}}]}`)
	words := does(t, "diff", "-db", db, file)
	for _, line := range []string{
		"user alice loses bank:retain on support\n",
		`user admin keeps bank:recall on support, with no parameters instead of with llm_model "quick-and-small", llm_provider "in-house", recall_budget "low", recall_max_tokens 1024` + "\n",
		"anybody gains bank:recall on support (topic billing)\n",
		"anybody loses bank:recall on support\n",
		"bank support has the strategy quick instead of the strategy balanced\n",
	} {
		if !strings.Contains(words, line) {
			t.Errorf("the diff lacks %q:\n%s", line, words)
		}
	}
	lines := does(t, "diff", "-db", db, "-json", file)
	is.Equal(strings.Count(lines, "\n"), strings.Count(words, "\n"))
	for _, line := range []string{
		`{"kind":"user","id":"alice","change":"newly_denied","action":"bank:retain","bank":"support","before":`,
		`{"kind":"public","change":"newly_allowed","action":"bank:recall","bank":"support","topic":"billing","before":null,"after":null}` + "\n",
		`{"kind":"strategy","bank":"support","before":"balanced","after":"quick"}` + "\n",
	} {
		if !strings.Contains(lines, line) {
			t.Errorf("the diff lacks %s:\n%s", line, lines)
		}
	}
}

// Commands read the standard input, and a refused bundle changes nothing.
func TestApplyFromTheStandardInput(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	is.NoErr(startServer(t, "-db", db).stop(t))
	piped := func(bundle string, args ...string) (string, error) {
		cmd := command(t, args...)
		cmd.Stdin = strings.NewReader(bundle)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := piped(`{"users": [{"id": "carol"}]}`, "apply", "-db", db, "-")
	is.NoErr(err)
	is.Equal(out, "")
	before := does(t, "export", "-db", db)
	is.True(strings.Contains(before, `"carol"`) && strings.Contains(before, `"alice"`))
	for bundle, want := range map[string]string{
		`{"users": [{"id": "dave"}], "groups": [{"id": "g", "members": ["nobody"]}]}`: "server: bundle -: /groups/0/members/0",
		`{"user": []}`: "server: bundle -: /user",
		`{"users": [{"id": "dave", "channels": [{"provider": "telegram", "sender_id": "1001"}]}]}`: `user "alice"`,
		``: "server: bundle -: ",
	} {
		for _, name := range []string{"apply", "diff"} {
			out, err = piped(bundle, name, "-db", db, "-")
			is.True(err != nil)
			if !strings.Contains(out, want) {
				t.Errorf("%s of %s says %s, want %s", name, bundle, out, want)
			}
		}
	}
	is.Equal(does(t, "export", "-db", db), before)
}

func TestAccessOfNothing(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	file := writeFile(t, "b.json", `{}`)
	for _, args := range [][]string{{"export", "-db", db}, {"apply", "-db", db, file}, {"diff", "-db", db, file}} {
		err := run(t.Context(), args, &output{}, &output{})
		is.True(err != nil && strings.HasPrefix(err.Error(), "database: "))
		_, err = os.Stat(db)
		is.True(os.IsNotExist(err)) // nothing was made
	}
	is.NoErr(startServer(t, "-db", db).stop(t))
	err := run(t.Context(), []string{"apply", "-db", db, "none.json"}, &output{}, &output{})
	is.True(err != nil && strings.HasPrefix(err.Error(), "bundle: "))
	is.Equal(exitCode(err, &bytes.Buffer{}), 1)
	_, err = svc.ParseBundle([]byte(does(t, "export", "-db", db)))
	is.NoErr(err)
}
