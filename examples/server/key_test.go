package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// issueKey runs the command key, which must print a key and nothing else.
func issueKey(t *testing.T, args ...string) string {
	t.Helper()
	is := is.New(t)
	var stdout, stderr output
	is.NoErr(run(t.Context(), append([]string{"key"}, args...), &stdout, &stderr))
	is.True(regexp.MustCompile(`^svc[us]_[0-9A-Za-z]{54}\n$`).MatchString(stdout.String()))
	is.Equal(stderr.String(), "")
	return strings.TrimSuffix(stdout.String(), "\n")
}

func TestKeyWhileTheServerRuns(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	server := startServer(t, "-db", db)

	alice := issueKey(t, "-db", db, "-user", "alice")
	is.True(strings.HasPrefix(alice, "svcu_"))
	status, list := server.get(t, alice, "/ext/svc/me/api-keys")
	is.Equal(status, 200)
	is.True(strings.Contains(list, `"description":"made with the command key"`))

	ci := issueKey(t, "-db", db, "-service-account", "ci")
	is.True(strings.HasPrefix(ci, "svcs_"))
	status, _ = server.get(t, ci, "/ext/svc/me/api-keys")
	is.Equal(status, 403) // a service account, not a user

	status, events := server.get(t, server.key(), "/ext/svc/admin/events?actor=server+key")
	is.Equal(status, 200)
	is.Equal(strings.Count(events, `"actor":{"kind":"host","id":"server key"},"action":"api_key.issued"`), 2)
}

func TestKeyWhileNoServerRuns(t *testing.T) {
	is := is.New(t)
	db, keys := newDB(t), newDB(t)+".secrets"
	is.NoErr(startServer(t, "-db", db, "-keys", keys).stop(t))
	key := issueKey(t, "-db", db, "-keys", keys, "-user", "bob")
	server := startServer(t, "-db", db, "-keys", keys)
	status, _ := server.get(t, key, "/ext/svc/me/api-keys")
	is.Equal(status, 200)
	is.True(strings.Contains(server.stdout.String(), " -keys "+keys+" -user admin)"))
}

func TestKeyThatCannotBe(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	fail := func(want string, args ...string) {
		t.Helper()
		var stdout output
		err := run(t.Context(), append([]string{"key", "-db", db}, args...), &stdout, &output{})
		is.Equal(stdout.String(), "")
		is.Equal(exitCode(err, &output{}), 1)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %q, want %q in it", args, err, want)
		}
	}
	fail("svc.db: no such file", "-user", "admin")
	_, err := os.Stat(db)
	is.True(os.IsNotExist(err)) // the command key creates no database

	is.NoErr(startServer(t, "-db", db).stop(t))
	fail(`user "zoe" has no row`, "-user", "zoe")
	fail("no such service account", "-service-account", "cd")
	fail(`user "a/b" has no row`, "-user", "a/b")

	is.NoErr(os.Remove(db + ".keys"))
	fail("svc.db.keys does not exist", "-user", "admin")
	_, err = os.Stat(db + ".keys")
	is.True(os.IsNotExist(err)) // a server with other keys would not accept what it prints
}
