package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

const smallBundle = `{
	"users": [{"id": "admin"}, {"id": "carol"}],
	"policies": [{"id": "all", "document": {"version": "2026-03-24", "statements": [
		{"effect": "allow", "actions": ["iam:*", "template:*"], "banks": ["*"]}]}}],
	"attachments": [{"policy_id": "all", "principal_type": "user", "principal_id": "admin"}]
}`

// everything lists the paths that an administrator reads.
var everything = []string{
	"/ext/svc/admin/template-sources",
	"/ext/svc/admin/templates",
	"/ext/svc/users/admin/api-keys",
	"/ext/svc/me/api-keys",
	"/ext/svc/debug/resolve?bank=support&user_id=alice",
}

func TestRestartKeepsEverything(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	first := startServer(t, "-db", db)
	key := first.key()
	status, _ := first.ask(t, key, "POST", "/ext/svc/admin/template-sources",
		`{"url": "https://templates.example/all", "auth_token": "hush", "description": null}`)
	is.Equal(status, 201)
	status, _ = first.ask(t, key, "POST", "/ext/svc/admin/templates", `{"id": "a", "name": "A", "manifest": {"version": "1", "n": 1.0}}`)
	is.Equal(status, 200)
	before := map[string]string{}
	for _, path := range everything {
		status, before[path] = first.get(t, key, path)
		is.Equal(status, 200)
	}
	is.NoErr(first.stop(t))

	second := startServer(t, "-db", db)
	for _, path := range everything {
		status, after := second.get(t, key, path)
		is.Equal(status, 200)
		is.Equal(after, before[path])
	}
	is.True(!strings.Contains(second.stdout.String(), "svcu_")) // only the first start prints a key
	is.True(strings.Contains(second.stdout.String(), "KEY=$("+word(os.Args[0])+" key -db "+db+" -user admin)\n"))
	is.True(!strings.Contains(second.stderr.String(), "level=WARN"))
}

func TestMeterPrintsOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, out := is.New(t), &strings.Builder{}
		report := meter(out)
		for done := range 10 {
			report(done, 9)
			time.Sleep(time.Second / 4)
		}
		is.Equal(out.String(), "bundle: 4 of 9 rows\nbundle: 8 of 9 rows\nbundle: 9 of 9 rows\n")
	})
}

func TestStartThatBrokeOffBeforeTheKey(t *testing.T) {
	is := is.New(t)
	db, ctx := newDB(t), context.Background()
	h, err := openHost(ctx, config{DB: db, Keys: db + ".keys"}, "http://127.0.0.1:1", slog.New(slog.DiscardHandler))
	is.NoErr(err)
	is.True(h.fresh)
	is.NoErr(h.applyDemo(ctx))
	is.NoErr(h.close())

	server := startServer(t, "-db", db)
	is.Equal(server.key(), "")
	is.True(strings.Contains(server.stdout.String(), " key -db "+db+" -user admin)"))
	key := issueKey(t, "-db", db, "-user", "admin")
	status, _ := server.get(t, key, "/ext/svc/me/api-keys")
	is.Equal(status, 200)
}

func TestBundleIsAppliedAtEveryStart(t *testing.T) {
	is := is.New(t)
	db, bundle := newDB(t), writeFile(t, "bundle.json", smallBundle)
	first := startServer(t, "-db", db, "-bundle", bundle)
	key := first.key()
	const carol, alice = "/ext/svc/debug/resolve?bank=b&user_id=carol", "/ext/svc/debug/resolve?bank=b&user_id=alice"
	_, before := first.get(t, key, carol)
	is.True(strings.Contains(before, `"resolved_user_id":"carol"`))
	_, unknown := first.get(t, key, alice)
	is.True(strings.Contains(unknown, `"resolved_user_id":null`)) // nothing of the demo
	is.NoErr(first.stop(t))

	second := startServer(t, "-db", db, "-bundle", bundle)
	is.Equal(second.key(), "")
	_, after := second.get(t, key, carol)
	is.Equal(after, before) // its revision included: applied again, it changed nothing
	is.NoErr(second.stop(t))

	is.NoErr(os.WriteFile(bundle, []byte(`{"users": [{"id": "carol", "is_active": false}]}`), 0o600))
	third := startServer(t, "-db", db, "-bundle", bundle)
	_, changed := third.get(t, key, carol)
	is.True(strings.Contains(changed, `user \"carol\" is inactive`))
}

func TestDemoIsForEmptyDatabasesOnly(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	first := startServer(t, "-db", db, "-bundle", writeFile(t, "bundle.json", smallBundle))
	key := first.key()
	is.NoErr(first.stop(t))
	second := startServer(t, "-db", db)
	_, alice := second.get(t, key, "/ext/svc/debug/resolve?bank=support&user_id=alice")
	is.True(strings.Contains(alice, `user \"alice\" is unknown`))
}

func TestBundleWithoutAdministrator(t *testing.T) {
	is := is.New(t)
	server := startServer(t, "-db", newDB(t), "-bundle", writeFile(t, "bundle.json", `{"users": [{"id": "carol"}]}`))
	is.True(!strings.Contains(server.stdout.String(), "svcu_"))
	is.True(strings.Contains(server.stdout.String(), " -user ID)"))
}

func TestBadBundle(t *testing.T) {
	is := is.New(t)
	db := newDB(t)
	start := func(bundle string) error {
		return run(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", db, "-bundle", bundle}, &output{}, &output{})
	}
	for text, want := range map[string]string{
		`{"users": [{"id": "a", "colour": 1}]}`:                                        "/users/0/colour",
		`{"users": [{"id": "a"}], "attachments": [{"policy_id": "p"}]}`:                "/attachments/0/principal_type",
		`{"groups": [{"id": "g", "members": ["nobody"]}], "users": [{"id": "admin"}]}`: "/groups/0/members/0",
		`[]`: "bundle.json",
	} {
		err := start(writeFile(t, "bundle.json", text))
		is.True(err != nil)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which does not name %s", text, err, want)
		}
	}
	is.True(strings.Contains(start("/no/such/bundle").Error(), "/no/such/bundle"))

	server := startServer(t, "-db", db) // nothing of them was written
	is.True(server.key() != "")
}
