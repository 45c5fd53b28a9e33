package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/examples/internal/programtest"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

func TestMain(m *testing.M) { programtest.Main(m, "SVC_EXAMPLE_TENANTS", main) }

// start runs the command until the end of the test. It returns the address and the keys.
func start(t *testing.T, args ...string) (base string, keys map[string]string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append(args, "-addr", "127.0.0.1:0"), write)
		_ = write.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		must(0, <-ended)
	})
	keys = map[string]string{}
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		name, key, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "admin key of "), ": ")
		if strings.HasPrefix(lines.Text(), "admin key of ") {
			keys[name] = key
		}
		if at, found := strings.CutPrefix(lines.Text(), "serving "); found {
			base, _, _ = strings.Cut(at, "/t/")
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return base, keys
		}
	}
	t.Fatal("the command has ended")
	return "", nil
}

// ask returns the status of a GET.
func ask(t *testing.T, url, bearer string) int {
	t.Helper()
	return programtest.Status(t, "GET", url, bearer)
}

// places make databases that do not exist yet, or are empty.
var places = map[string]func(t *testing.T) string{
	"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "tenants") },
	"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
}

func TestTenants(t *testing.T) {
	t.Parallel()
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is, at := is.New(t), place(t)
			base, keys := start(t, "-tenants", "3", "-db", at)
			const list = "/ext/svc/admin/templates"
			for tenant, key := range keys {
				is.Equal(ask(t, base+"/t/"+tenant+list, ""), 401)
				is.Equal(ask(t, base+"/t/"+tenant+list, key), 200)
				is.Equal(ask(t, base+"/t/t3"+list, key), 401)
				is.Equal(ask(t, base+"/t/t4"+list, key), 404)
			}
			is.Equal(len(keys), 2)
			is.Equal(ask(t, base+"/", ""), 200)
			var out bytes.Buffer
			is.NoErr(run(t.Context(), []string{"-migrate", "-db", at}, &out))
		})
	}
}

// A tenant that has moved keeps its keys, and is served where it is now.
func TestMove(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	folder, url := filepath.Join(t.TempDir(), "tenants"), pgtest.Database(t)
	base, keys := start(t, "-tenants", "2", "-db", folder)
	const list = "/t/t1/ext/svc/admin/templates"
	is.NoErr(run(t.Context(), []string{"-db", folder, "-move", "t1", "-to", url}, io.Discard))
	is.True(run(t.Context(), []string{"-db", folder, "-move", "t1", "-to", url}, io.Discard) != nil) // it is there
	is.True(run(t.Context(), []string{"-db", folder, "-move", "t2", "-to", folder}, io.Discard) != nil)
	moved, _ := start(t, "-tenants", "1", "-db", url)
	is.Equal(ask(t, moved+list, keys["t1"]), 200)
	is.Equal(ask(t, moved+list, keys["t2"]), 401)
	is.True(programtest.Soon(func() bool { return ask(t, base+list, keys["t1"]) == 404 }))
	is.Equal(ask(t, base+"/t/t2/ext/svc/admin/templates", keys["t2"]), 200)
}

// Nobody loses what a running server has accepted, and a move that was killed can be repeated.
func TestMoveUnderRequests(t *testing.T) {
	longtest.Parallel(t, "a move while requests come")
	is := is.New(t)
	folder, url := filepath.Join(t.TempDir(), "tenants"), pgtest.Database(t)
	base, keys := start(t, "-tenants", "1", "-db", folder)
	there := must(postgres.OpenTenants(t.Context(), url, postgres.Options{Timeout: -1}))
	defer there.Close()
	must(there.CreateTenant(t.Context(), "t1", svc.TenantSuspended, time.Now())) // and then killed
	begun, accepted := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			answer, _ := programtest.Ask(t, http.DefaultClient, "POST", base+"/t/t1/ext/svc/users", fmt.Sprintf(`{"id":"u%d"}`, n),
				"Authorization: Bearer "+keys["t1"], "Content-Type: application/json")
			if answer.StatusCode != 201 {
				break
			}
			if n++; n == 20 {
				close(begun)
			}
		}
		accepted <- n
	}()
	select {
	case <-begun:
	case n := <-accepted:
		t.Fatalf("request %d was refused", n)
	}
	is.NoErr(run(t.Context(), []string{"-db", folder, "-move", "t1", "-to", url}, io.Discard))
	n := <-accepted
	tenants := must(svc.NewTenants(svc.TenantsConfig{Store: there}))
	defer tenants.Close()
	is.NoErr(tenants.Use(t.Context(), "t1", func(s *svc.Service) error {
		for i := range n {
			if _, err := s.Users.Read(t.Context(), svc.Host, fmt.Sprint("u", i)); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestWrongFlags(t *testing.T) {
	is := is.New(t)
	is.True(run(t.Context(), []string{"-tenants", "-1"}, os.Stdout) != nil)
	is.True(run(t.Context(), []string{"more"}, os.Stdout) != nil)
	is.True(run(t.Context(), []string{"-move", "t1"}, os.Stdout) != nil)
	is.True(run(t.Context(), []string{"-db", "postgress://x"}, os.Stdout) != nil)
	is.True(run(t.Context(), []string{"-db", ""}, os.Stdout) != nil)
}

// The host's row and the tenant's user commit together, or neither is there.
func TestTakeSeat(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	url := pgtest.Database(t)
	store := must(postgres.OpenTenants(ctx, url, postgres.Options{Timeout: -1}))
	defer store.Close()
	tenants := must(svc.NewTenants(svc.TenantsConfig{Store: store}))
	defer tenants.Close()
	db := pgtest.Open(t, url)
	must(db.Exec(`CREATE TABLE seats (tenant BIGINT, holder TEXT UNIQUE)`))
	for _, name := range []string{"a", "b"} {
		must(tenants.Create(ctx, name))
	}
	counts := func(name string) (users, seats int) {
		tenant := must(tenants.Get(ctx, name))
		is.NoErr(tenants.Use(ctx, name, func(s *svc.Service) error {
			for _, err := range s.Users.List(ctx, svc.Host, svc.UserQuery{}) {
				is.NoErr(err)
				users++
			}
			return nil
		}))
		is.NoErr(db.QueryRow(`SELECT COUNT(*) FROM seats WHERE tenant = $1`, tenant.Number).Scan(&seats))
		return users, seats
	}
	for i, name := range []string{"a", "b"} { // the seat of u is unique among all tenants
		is.Equal(takeSeat(ctx, tenants, store, name, "u") == nil, i == 0)
		users, seats := counts(name)
		is.Equal([]int{users, seats}, []int{1 - i, 1 - i})
	}
}

func TestServesWithoutReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	output := programtest.Unread{Line: "serving", End: cancel}
	is.New(t).NoErr(run(ctx, []string{"-addr", "127.0.0.1:0", "-tenants", "1", "-db", t.TempDir()}, output))
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// commands returns a block of docs/howto/move-tenant.md, for the tenant with the number 1.
func commands(t *testing.T, name string) string {
	t.Helper()
	block := programtest.Block(t, "../../docs/howto/move-tenant.md", "<!-- commands: "+name+" -->\n```sh")
	return strings.ReplaceAll(block, "17", "1")
}

// TestDocumentedBackups runs the commands of the documentation unchanged, for one of two tenants.
func TestDocumentedBackups(t *testing.T) {
	t.Parallel()
	for name, programs := range map[string][]string{
		"SQLite": {"sqlite3"}, "PostgreSQL": {"pg_dump", "pg_restore", "psql"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programtest.NeedPostgres(t, "the backup of docs/howto/move-tenant.md", programs...)
			backup, restore := commands(t, "backup of "+name), commands(t, "restore of "+name)
			testBackup(t, places[name](t), backup, restore)
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
	programtest.Shell(t, dir, backup, "DATABASE="+db)
	template("a", "later")
	template("b", "later")
	for range 2 { // a restore can be repeated
		is.NoErr(tenants.Suspend(ctx, "a"))
		programtest.Shell(t, dir, restore, "DATABASE="+db)
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
