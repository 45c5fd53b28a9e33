package main

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestLint(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	file := writeFile(t, "b.json", `{"users": [{"id": "a"}], "groups": [{"id": "g", "members": ["a", "nobody"]}],
		"policies": [{"id": "p", "document": {"version": "2026-03-24", "statements": [
			{"effect": "allow", "actions": ["bank:recal"], "banks": ["*"]}]}}]}`)
	out, err := command(t, "lint", file).CombinedOutput()
	is.Equal(err.Error(), "exit status 1")
	is.True(strings.Contains(string(out), "error /groups/0/members/1 reference_missing: "))
	is.True(strings.Contains(string(out), "warning /policies/0 policy_unattached: "))
	is.True(strings.Contains(string(out), "server: lint found 1 errors\n"))
	is.True(!strings.Contains(string(out), "action_unknown"))

	server := startServer(t, "-db", db)
	demo := does(t, "lint", "-db", db)
	is.Equal(does(t, "lint", "-db", db, writeFile(t, "b.json", does(t, "export", "-db", db))), demo)
	is.True(strings.Contains(does(t, "lint", "-db", db, "-known", "bank:nothing"), "action_unknown"))
	t.Setenv("SVC_KEY", server.key())
	is.Equal(does(t, "lint", "-url", server.base+"/ext/svc"), demo)
	err = run(t.Context(), []string{"lint", "none.json"}, &output{}, &output{})
	is.Equal(exitCode(err, &output{}), 1)
}

func TestWhoCan(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	server := startServer(t, "-db", db)
	table := does(t, "who-can", "-db", db, "-bank", "support")
	for _, line := range []string{`user +alice +true`, `user +admin +true`, `service_account +ci +true`, `unmapped +\* +true`, `unmapped +topic:billing +false`} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(table) {
			t.Errorf("the table lacks %s:\n%s", line, table)
		}
	}
	is.True(!strings.Contains(table, "bob"))
	t.Setenv("SVC_KEY", server.key())
	is.Equal(does(t, "who-can", "-url", server.base+"/ext/svc", "-action", "bank:recall", "-bank", "support"), table)
	lines := does(t, "who-can", "-db", db, "-action", "bank:retain", "-bank", "support", "-json")
	is.True(strings.HasPrefix(lines, `{"public":{"default":false,"overrides":[`) && strings.Contains(lines, `"service_accounts":[],"users":["alice"]}`))

	fail := func(want string, code int, args ...string) {
		t.Helper()
		err := run(t.Context(), append([]string{"who-can", "-db", db}, args...), &output{}, &output{})
		if err == nil || !strings.Contains(err.Error(), want) || exitCode(err, &output{}) != code {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	fail("-bank", 2)
	fail("action", 1, "-bank", "b", "-action", "a b\n")
	t.Setenv("SVC_KEY", issueKey(t, "-db", db, "-user", "bob"))
	fail("iam:users:read", 1, "-url", server.base+"/ext/svc", "-bank", "b")
	t.Setenv("SVC_KEY", "")
	fail("SVC_KEY", 2, "-url", server.base+"/ext/svc", "-bank", "b")
}

func TestVerifyAudit(t *testing.T) {
	is := is.New(t)
	dbFile := newDB(t)
	server := startServer(t, "-db", dbFile)
	mark := strings.TrimSpace(does(t, "verify-audit", "-db", dbFile))
	is.True(regexp.MustCompile(`^\d+:[0-9a-f]{64}$`).MatchString(mark))
	for range 5 {
		status, _ := server.ask(t, server.key(), "POST", "/ext/svc/me/api-keys", "")
		is.Equal(status, 201)
	}
	is.True(strings.TrimSpace(does(t, "verify-audit", "-db", dbFile, "-mark", mark)) != mark)
	is.NoErr(server.stop(t))

	number, _, _ := strings.Cut(mark, ":")
	db, err := sql.Open("sqlite", dbFile)
	is.NoErr(err)
	defer db.Close()
	_, err = db.Exec("UPDATE svc_audit SET action = 'api_key.revoked' WHERE number = ?", number)
	is.NoErr(err)
	out, err := command(t, "verify-audit", "-db", dbFile).CombinedOutput()
	is.Equal(err.Error(), "exit status 1")
	is.True(strings.HasPrefix(string(out), "server: audit record "+number+" "))

	_, err = db.Exec("DELETE FROM svc_audit WHERE number <= ?", number)
	is.NoErr(err)
	does(t, "verify-audit", "-db", dbFile) // the oldest may be deleted
	err = run(t.Context(), []string{"verify-audit", "-db", dbFile, "-mark", mark}, &output{}, &output{})
	is.True(err != nil && strings.Contains(err.Error(), "audit record "+number))
	err = run(t.Context(), []string{"verify-audit", "-db", dbFile, "-mark", "1"}, &output{}, &output{})
	is.Equal(exitCode(err, &output{}), 2)
}
