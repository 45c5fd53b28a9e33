package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// commands returns a block of docs/howto/move-tenant.md, for the tenant with the number 1.
func commands(t *testing.T, name string) string {
	t.Helper()
	block := programtest.Block(t, "../../docs/howto/move-tenant.md", "<!-- commands: "+name+" -->\n```sh")
	return strings.ReplaceAll(block, "17", "1")
}

// TestDocumentedBackups runs the commands of the documentation unchanged, for one of two tenants.
func TestDocumentedBackups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		programs []string
		db       func(t *testing.T) string
	}{
		"SQLite":     {[]string{"sqlite3"}, func(t *testing.T) string { return filepath.Join(t.TempDir(), "tenants") }},
		"PostgreSQL": {[]string{"pg_dump", "pg_restore", "psql"}, func(t *testing.T) string { return pgtest.Database(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programtest.NeedPostgres(t, "the backup of docs/howto/move-tenant.md", c.programs...)
			backup, restore := commands(t, "backup of "+name), commands(t, "restore of "+name)
			testBackup(t, c.db(t), backup, restore)
		})
	}
}

func testBackup(t *testing.T, db, backup, restore string) {
	is, ctx := is.New(t), t.Context()
	store := must(open(ctx, db))
	defer store.Close()
	tenants := must(svc.NewTenants(svc.TenantsConfig{Store: store}))
	defer tenants.Close()
	dir := db
	if strings.Contains(db, "://") {
		dir = t.TempDir()
	}
	shell := func(commands string) {
		t.Helper()
		command := exec.CommandContext(ctx, "sh", "-e", "-c", commands)
		command.Env, command.Dir = append(os.Environ(), "DATABASE="+db), dir
		if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", commands, err, out)
		}
	}
	template := func(name, id string) {
		t.Helper()
		is.NoErr(tenants.Use(ctx, name, func(s *svc.Service) error {
			content := svc.Content{Name: "n", Manifest: []byte(`{"version":"1"}`)}
			_, err := s.Templates.Create(ctx, svc.Host, svc.NewTemplate{ID: id, Content: content})
			return err
		}))
	}
	templates := func(name string) (ids []string) {
		t.Helper()
		is.NoErr(tenants.Use(ctx, name, func(s *svc.Service) error {
			for template, err := range s.Templates.List(ctx, svc.Host, svc.TemplateQuery{}) {
				if err != nil {
					return err
				}
				ids = append(ids, template.ID)
			}
			return nil
		}))
		return ids
	}
	var key svc.IssuedKey
	for _, name := range []string{"a", "b"} {
		must(tenants.Create(ctx, name))
		template(name, "before")
	}
	is.NoErr(tenants.Use(ctx, "a", func(s *svc.Service) (err error) {
		key, err = s.Keys.Issue(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: "u"}, svc.NewAPIKey{})
		return err
	}))
	shell(backup)
	template("a", "later")
	template("b", "later")
	for range 2 { // a restore can be repeated
		is.NoErr(tenants.Suspend(ctx, "a"))
		shell(restore)
		is.NoErr(tenants.Resume(ctx, "a"))
		is.Equal(templates("a"), []string{"before"})
		is.Equal(templates("b"), []string{"before", "later"})
		template("a", "later")
	}
	is.NoErr(tenants.Use(ctx, "a", func(s *svc.Service) error {
		_, err := s.Authenticate(ctx, string(key.Key))
		return err
	}))
}
