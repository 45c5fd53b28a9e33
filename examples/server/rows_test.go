package main

import (
	"encoding/json"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/store/postgres/pgtest"
)

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
