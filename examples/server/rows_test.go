package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/store/postgres/pgtest"
)

// ends runs a command that ends with a code and says nothing about it.
func ends(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr output
	err := run(t.Context(), args, &stdout, &stderr)
	if got, is := errors.AsType[silent](err); err != nil && !is || int(got) != code {
		t.Errorf("%v: got %v, want exit %d", args, err, code)
	}
	return stdout.String()
}

// Every kind of row is listed, shown, added, changed and removed, on a database and from afar. Records
// name the user of the system, or the holder of the key.
func TestRows(t *testing.T) {
	t.Setenv("SUDO_USER", "ops")
	db := newDB(t)
	server := startServer(t, "-db", db)
	t.Setenv("SVC_KEY", server.key())
	for name, at := range map[string][]string{"here": {"-db", db}, "afar": {"-url", server.base + "/ext/svc"}} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			do := func(line string, more ...string) string {
				t.Helper()
				return does(t, append(append(strings.Fields(line), more...), at...)...)
			}
			u, g, p, a := "u-"+name, "g-"+name, "p-"+name, "a-"+name
			file := writeFile(t, "p.json", `{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":["x"]}]}`)
			bank := writeFile(t, "b.json", `{"version":"2026-03-24","default_strategy":"quick"}`)
			is.Equal(do("user add "+u, "--display-name", "A Name", "-email", "u@example.org"), "added user "+u+"\n")
			is.Equal(do("user set "+u+" --active=false"), "changed user "+u+"\n")
			var users []userRow
			is.NoErr(json.Unmarshal([]byte(do("user list --json")), &users))
			one := userRow{}
			is.NoErr(json.Unmarshal([]byte(do("--json user show "+u)), &one))
			is.Equal(one.DisplayName+*one.Email, "A Nameu@example.org")
			is.True(!one.IsActive && len(users) > 1)
			do("user set " + u + " --active --email=")
			do("group add " + g)
			is.Equal(do("group add-member "+g+" "+u), "added "+u+" to group "+g+"\n")
			is.True(strings.Contains(do("group show "+g), `"members": [`))
			do("policy add " + p + " " + file)
			is.True(strings.Contains(do("policy list"), p))
			is.True(strings.Contains(do("policy show "+p+" -json"), `"is_builtin":false`))
			is.Equal(do("attachment add "+p+" -group "+g+" -priority 7"), "attached "+p+" to group "+g+"\n")
			is.True(strings.Contains(do("attachment list"), p))
			is.True(strings.HasPrefix(do("why -user "+u+" -bank x"), "allowed by statement 0"))
			is.True(strings.HasPrefix(ends(t, 1, append([]string{"why", "-user", u, "-bank", "y"}, at...)...), "denied"))
			do("account add " + a + " -owner " + u)
			do("account set " + a + " -scoping-policy " + p)
			is.True(strings.Contains(do("account list -json"), `"scoping_policy_id":"`+p+`"`))
			do("bank set b/" + name + " " + bank)
			is.True(strings.Contains(do("bank list"), "b/"+name) && strings.Contains(do("bank show b/"+name), "quick"))
			do("bank remove b/" + name)

			issue := append([]string{"key", "issue", "-user", u, "-description", "made here"}, at...)
			key := strings.TrimSpace(does(t, issue...))
			is.True(strings.HasPrefix(key, "svcu_") && len(key) == 59)
			is.True(strings.Contains(do("key list -user "+u), key[:21]))
			next := strings.TrimSpace(do("key rotate " + key[:21]))
			server.wants(t, 401, key, "GET", "/ext/svc/me", "")
			server.wants(t, 200, next, "GET", "/ext/svc/me", "")
			is.Equal(do("key revoke "+next[5:21]), "revoked key "+next[:21]+" of "+u+"\n")

			is.True(strings.Contains(do("source list"), "demo") || do("source list -json") != "")
			is.True(do("template list -json") != "")
			who := map[string]string{"here": `"id":"ops"`, "afar": `"id":"admin"`}[name]
			is.True(strings.Contains(do("audit -limit 1 -json"), who))
			do("attachment remove " + p + " -group " + g)
			do("account remove " + a)
			do("policy remove " + p)
			do("group remove-member " + g + " " + u)
			do("group remove " + g)
			is.Equal(do("user remove "+u), "removed user "+u+"\n")
			fails(t, "no such user", append([]string{"user", "show", u}, at...)...)
		})
	}
}

// A name of a flag says whether a value follows, which may begin with a dash.
func TestValuesWithDashes(t *testing.T) {
	takes := map[string]bool{}
	for _, of := range subcommands {
		of.flags().VisitAll(func(f *flag.Flag) {
			if was, seen := takes[f.Name]; seen && was == isSwitch(f) {
				t.Errorf("-%s takes a value in some commands only", f.Name)
			}
			takes[f.Name] = !isSwitch(f)
		})
	}
}

// Settings come from the environment as well: before the file, and after the flags.
func TestEnvironment(t *testing.T) {
	is := is.New(t)
	t.Setenv("SVC_DB", "from-the-environment.db")
	t.Setenv("SVC_LOG_LEVEL", "warn")
	t.Setenv("SVC_HTTP_HIDE_OPENAPI", "true")
	t.Setenv("SVC_SOURCES_ALLOW_CIDRS", "10.0.0.0/8, 192.168.0.0/16")
	t.Setenv("SVC_API_KEYS_MAX_PER_HOLDER", "7")
	c := parsed(t)
	is.Equal(c.DB+" "+c.Log.Level, "from-the-environment.db warn")
	is.True(c.HTTP.HideOpenAPI && c.APIKeys.MaxPerHolder == 7)
	is.Equal(c.Sources.AllowCIDRs, []string{"10.0.0.0/8", "192.168.0.0/16"})
	is.Equal(parsed(t, "-db", "flag.db").DB, "flag.db")
	file := writeFile(t, "svc.toml", "db = \"file.db\"\n[log]\nlevel = \"debug\"\n")
	is.Equal(parsed(t, "-config", file).DB, "from-the-environment.db")
	for variable, value := range map[string]string{"SVC_API_KEYS_MAX_PER_HOLDER": "many", "SVC_LOG_LEVEL": "loud", "SVC_HTTP_IDLE_TIMEOUT": "never", "SVC_EVENTS_KEEP": "maybe"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			err := run(t.Context(), []string{"-print-config"}, &output{}, &output{})
			if exitCode(err, &output{}) != 2 || !strings.Contains(err.Error(), variable) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What a file asks besides rows is asked of these rows alone. Each answer that is another one is explained.
func TestQuestionsOfAFile(t *testing.T) {
	is := is.New(t)
	file := writeFile(t, "a.json", `{"users":[{"id":"nobody"}],"policies":[{"id":"p","document":{"version":"2026-03-24","statements":[
	  {"effect":"allow","actions":["bank:*"],"banks":["*"]}]}}],"attachments":[{"policy_id":"p","principal_type":"user","principal_id":"nobody"}],
	  "tests":[{"user_id":"alice","action":"bank:recall","bank":"support","allowed":true},{"user_id":"nobody","action":"bank:recall","bank":"support","allowed":false}]}`)
	var stdout output
	err := run(t.Context(), []string{"test", file}, &stdout, &output{})
	is.Equal(err.Error(), "2 of 2 answers are others")
	is.Equal(exitCode(err, &output{}), 1)
	is.True(strings.Contains(stdout.String(), "is user \"alice\" is unknown") && strings.Contains(stdout.String(), "is allowed by statement 0"))
}

// A key that cannot be one is a mistake of its variable.
func TestWrongKeyInTheEnvironment(t *testing.T) {
	for _, key := range []string{"", "two words", "svcu_x\n", "ü"} {
		t.Setenv("SVC_KEY", key)
		exits(t, 2, "SVC_KEY", "user", "list", "-url", "http://127.0.0.1:1/ext/svc")
	}
}

// Tenants are made, listed, suspended, resumed, migrated and dropped, as examples/tenants has them.
func TestTenantCommands(t *testing.T) {
	t.Parallel()
	for kind, db := range map[string]string{"SQLite": filepath.Join(t.TempDir(), "tenants"), "PostgreSQL": pgtest.Database(t)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			tenant := func(line string) string {
				t.Helper()
				return does(t, append(strings.Fields("tenant "+line), "-db", db)...)
			}
			states := func() (all string) {
				var list []tenantRow
				is.NoErr(json.Unmarshal([]byte(tenant("list --json")), &list))
				for _, row := range list {
					all += row.Name + " " + string(row.State) + ";"
				}
				return all
			}
			is.Equal(tenant("create acme"), "created tenant acme, number 1\n")
			tenant("create beta")
			is.Equal(tenant("suspend acme"), "suspended tenant acme\n")
			is.Equal(states(), "acme suspended;beta active;")
			is.True(strings.Contains(tenant("list"), "acme  1       suspended"))
			is.Equal(tenant("resume acme"), "resumed tenant acme\n")
			is.Equal(tenant("migrate"), "2 tenants, 0 failed\n")
			for line, code := range map[string]int{"create acme": 1, "suspend none": 1, "drop none -yes": 1, "drop": 2, "list more": 2} {
				err := run(t.Context(), append(strings.Fields("tenant "+line), "-db", db), io.Discard, io.Discard)
				is.Equal(exitCode(err, io.Discard), code)
			}

			drop := command(t, "tenant", "drop", "acme", "-db", db)
			drop.Stdin = strings.NewReader("beta\n")
			said, err := drop.CombinedOutput()
			is.True(err != nil && strings.Contains(string(said), "nothing was removed"))
			is.Equal(states(), "acme active;beta active;")
			drop = command(t, "tenant", "drop", "acme", "-db", db)
			drop.Stdin = strings.NewReader("acme\n")
			is.NoErr(drop.Run())
			tenant("drop beta -yes")
			is.Equal(states(), "")
		})
	}
}
