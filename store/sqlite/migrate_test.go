package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

func TestOpenAtOnceInOneProcess(t *testing.T) {
	t.Parallel()
	for range longtest.Times(3, 10) {
		path := filepath.Join(t.TempDir(), "svc.db")
		sqltest.OpenAtOnce(t, func() error { return openAndWrite(path) })
		checkIntegrity(t, path)
	}
}

func TestOpenAtOnceInManyProcesses(t *testing.T) {
	t.Parallel()
	for range longtest.Times(1, 3) {
		path := filepath.Join(t.TempDir(), "svc.db")
		sqltest.OpenAtOnce(t, func() error { return runChild("TestChild", "SVC_TEST_PATH="+path) })
		checkIntegrity(t, path)
	}
}

// TestChild is a process of TestOpenAtOnceInManyProcesses.
func TestChild(t *testing.T) {
	is.New(t).NoErr(openAndWrite(ofChild(t, "SVC_TEST_PATH")))
}

// runChild runs a test in another process, with variables for it.
func runChild(test string, variables ...string) error {
	child := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), variables...)
	out, err := child.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// ofChild returns a variable of such a process. Without it the test is skipped.
func ofChild(t *testing.T, variable string) string {
	if os.Getenv(variable) == "" {
		t.Skip("runs in processes that another test starts")
	}
	return os.Getenv(variable)
}

func openAndWrite(path string) error {
	return sqltest.KeepAndClose(sqlite.Open(context.Background(), path, sqlite.Options{}))
}

func checkIntegrity(t *testing.T, path string) {
	t.Helper()
	is.New(t).Equal(sqltest.Value[string](t, raw(t, path, "_pragma=busy_timeout(5000)"), "PRAGMA integrity_check"), "ok")
}

func TestMigrationThatFailsLeavesNothing(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	db := raw(t, path)
	must(db.Exec("CREATE TABLE svc_users (mine TEXT)"))
	is.True(failure(sqlite.Open(t.Context(), path, sqlite.Options{})) != nil)
	is.Equal(sqltest.Value[int](t, db, "SELECT count(*) FROM sqlite_master WHERE type = 'table'"), 1)
}

func TestPrintedMigrationsAreTheMigrations(t *testing.T) {
	is.New(t).NoErr(fstest.TestFS(sqlstore.Migrations(sqlite.Dialect()), "0001_svc.up.sql", "0002_svc.up.sql"))
	sqltest.Databases{
		Dialect: sqlite.Dialect(), Schema: schema,
		New:     func(t *testing.T) string { return filepath.Join(t.TempDir(), "svc.db") },
		Open:    func(t *testing.T, path string) *sql.DB { return raw(t, path) },
		Migrate: func(t *testing.T, path string) { open(t, path) },
	}.PrintedMigrations(t)
}

func schema(t *testing.T, path string) []string {
	t.Helper()
	var list []string
	for _, text := range sqltest.Column(t, raw(t, path), "SELECT COALESCE(sql, name) FROM sqlite_master ORDER BY name") {
		list = append(list, strings.Join(strings.Fields(text), " "))
	}
	return list
}

// TestMigrationsAreKilled kills a process at each statement of the migrations, and at each commit, of a new
// database and of one with the first tables.
func TestMigrationsAreKilled(t *testing.T) {
	longtest.Parallel(t, "migrations that are killed")
	want := schema(t, migrated(t))
	for version := range 2 {
		at := 1
		for ; ; at++ {
			path := ofVersion(t, version)
			err := runChild("TestKilledChild", "SVC_TEST_KILLED="+path, "SVC_TEST_KILL_AT="+strconv.Itoa(at))
			open(t, path)
			if got := schema(t, path); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("killed at statement %d: the schema is %v", at, got)
			}
			checkIntegrity(t, path)
			if err == nil {
				break // it was not killed: there are no more statements
			}
			if !strings.HasPrefix(err.Error(), "signal: killed") {
				t.Fatal(err)
			}
		}
		is.New(t).True(at > 2)
	}
}

// ofVersion returns the path of a database with the migrations up to a version.
func ofVersion(t *testing.T, version int) string {
	path := filepath.Join(t.TempDir(), "svc.db")
	db, files := raw(t, path), sqlstore.Migrations(sqlite.Dialect())
	for n := 1; n <= version; n++ {
		must(db.Exec(string(must(fs.ReadFile(files, fmt.Sprintf("%04d_svc.up.sql", n))))))
	}
	is.New(t).NoErr(db.Close())
	return path
}

// TestKilledChild is a process of TestMigrationsAreKilled.
func TestKilledChild(t *testing.T) {
	path := ofChild(t, "SVC_TEST_KILLED")
	left := must(strconv.Atoi(os.Getenv("SVC_TEST_KILL_AT")))
	step := func() error {
		if left--; left == 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			return fmt.Errorf("still alive: %w", err)
		}
		return nil
	}
	seen := &tap{commit: step, run: func(driver.Conn, string) error { return step() }}
	is.New(t).NoErr(tapped(t, path, seen).Migrate(t.Context()))
}

func TestTablesOfTheHostAreLeftAlone(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.db")
	db := raw(t, path)
	for _, table := range []string{"schema_migrations", "goose_db_version", "gorp_migrations", "migrations", "users", "api_keys"} {
		must(db.Exec("CREATE TABLE " + table + " (version INTEGER); INSERT INTO " + table + " VALUES (42)"))
	}
	is.NoErr(sqltest.WriteAll(t.Context(), open(t, path)))
	for _, table := range []string{"schema_migrations", "goose_db_version", "gorp_migrations", "migrations", "users", "api_keys"} {
		is.Equal(sqltest.Value[int](t, db, "SELECT version FROM "+table), 42)
	}
}

// Tables of an attached database, or temporary ones, are not those of the Store.
func TestTablesOutsideMain(t *testing.T) {
	is := is.New(t)
	other := filepath.Join(t.TempDir(), "other.db")
	is.NoErr(must(sqlite.Open(t.Context(), other, sqlite.Options{})).Close())
	for schema, statement := range map[string]string{
		"other": "ATTACH '" + other + "' AS other",
		"temp":  "CREATE TEMP TABLE svc_migrations AS SELECT 4 AS version",
	} {
		db := must(sql.Open("sqlite", filepath.Join(t.TempDir(), "main.db")))
		db.SetMaxOpenConns(1)
		must(db.Exec(statement))
		own := sqlstore.New(db, db, sqlite.Dialect())
		_, pending := sqlstore.Pending(t.Context(), db, sqlite.Dialect())
		for _, err := range []error{own.Migrate(t.Context()), pending} {
			is.True(err != nil && strings.Contains(err.Error(), `"main"`) && strings.Contains(err.Error(), strconv.Quote(schema)))
		}
		is.Equal(sqltest.Value[int](t, db, "SELECT COUNT(*) FROM main.sqlite_schema WHERE name = 'svc_users'"), 0)
		is.NoErr(db.Close())
	}
}

// Users from before the ninth migration are found with letters of either case.
func TestUsersAreFolded(t *testing.T) {
	is := parallel(t)
	path := ofVersion(t, 8)
	db := raw(t, path)
	must(db.Exec(`INSERT INTO svc_users (id, display_name, email, inactive) VALUES ('ÉRIC', 'Zoé', NULL, 0), ('Bob', 'B', 'B@X', 0), ('c', 'C', 'Ö@X', 0)`))
	is.NoErr(db.Close())
	store := open(t, path)
	for text, want := range map[string]string{"éri": "ÉRIC", "ZOÉ": "ÉRIC", "bo": "Bob", "b@x": "Bob", "ö@x": "c"} {
		var found []string
		must(store.ReadAccess(t.Context(), svc.AccessRead{Page: &svc.AccessPage{Kind: event.TargetUser, Text: text, Limit: 9}}, func(b svc.Bundle) error {
			for _, u := range b.Users {
				found = append(found, u.ID)
			}
			return nil
		}))
		is.Equal(found, []string{want})
	}
}
