package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// onPostgres returns flags for a database and a keys file that do not exist yet.
func onPostgres(t *testing.T) []string {
	t.Helper()
	return []string{"-db", pgtest.Schema(t), "-keys", filepath.Join(t.TempDir(), "svc.keys")}
}

// Two servers share a database, as in an upgrade without downtime.
func TestTwoServersOnPostgres(t *testing.T) {
	is := parallel(t)
	flags := onPostgres(t)
	one := startServer(t, flags...)
	two := startServer(t, flags...)
	is.Equal(two.key(), "")
	issued := one.wants(t, 201, one.key(), "POST", "/ext/svc/users/alice/api-keys", "")
	_, rest, _ := strings.Cut(issued, `"api_key":"`)
	key, _, _ := strings.Cut(rest, `"`)
	two.wants(t, 200, key, "GET", "/ext/svc/me/api-keys", "")
	one.wants(t, 204, one.key(), "DELETE", "/ext/svc/users/alice/api-keys/"+key[len("svcu_"):len("svcu_")+16], "")
	one.wants(t, 401, key, "GET", "/ext/svc/me/api-keys", "")
	is.True(soon(func() bool { status, _ := two.get(t, key, "/ext/svc/me/api-keys"); return status == 401 }))
}

func TestPostgresThatIsNotThere(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, line := range []string{"-addr 127.0.0.1:0", "migrate -print"} {
		is := is.New(t)
		args := append(strings.Fields(line), "-db", "postgres://u:Hunter2Secret@127.0.0.1:1/svc?sslmode=disable")
		err := run(t.Context(), args, &output{}, &output{})
		is.Equal(exitCode(err, &output{}), 1)
		is.True(strings.Contains(err.Error(), `database "svc" on 127.0.0.1:1`))
		is.True(!strings.Contains(err.Error(), "Hunter2Secret"))
		wantFiles(t, ".") // it creates no keys file
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	is := is.New(t)
	const secret = "Hunter2Secret"
	for db, want := range map[string]string{
		"svc.db":                                  "svc.db",
		"postgres://u@h:5432/d?sslmode=disable":   "postgres://u@h:5432/d?sslmode=disable",
		"postgres://u:Hunter2Secret@h/d":          "postgres://u:PASSWORD@h/d",
		"postgresql://h/d?password=Hunter2Secret": "postgresql://h/d?password=PASSWORD",
		"postgres://u:Hunter2Secret%zz@h/d":       "URL",
	} {
		c := config{DB: db}
		c.Keys = c.usualKeys()
		var printed output
		is.NoErr(greet(&printed, c, "http://127.0.0.1:1", start{administrator: true}))
		is.True(strings.Contains(printed.String(), " key -db "+word(want)+" -user admin)\n"))
		is.True(!strings.Contains(printed.String(), secret))
		is.Equal(strings.Contains(printed.String(), ", with the password in place of PASSWORD\n"), strings.Contains(db, secret))
	}
}

// migrate -all prints the SQL for an empty database and opens none.
func TestAllMigrationsArePrinted(t *testing.T) {
	is := is.New(t)
	for db, dialect := range map[string]sqlstore.Dialect{
		"none.db": sqlite.Dialect(), "postgres://u:p@127.0.0.1:1/none": postgres.Dialect(),
	} {
		var stdout, stderr output
		is.NoErr(run(t.Context(), []string{"migrate", "-print", "-all", "-db", db}, &stdout, &stderr))
		is.Equal(stdout.String(), sqlstore.SQL(dialect))
		is.Equal(stderr.String(), "")
	}
	_, err := os.Stat("none.db")
	is.True(os.IsNotExist(err))
}

// migrate prints the SQL that a database lacks: all, or nothing. After that SQL, the server
// migrates nothing.
func TestMigrationsArePrinted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		db, driver string
		dialect    sqlstore.Dialect
	}{
		"SQLite":     {newDB(t), "sqlite", sqlite.Dialect()},
		"PostgreSQL": {pgtest.Schema(t), "pgx", postgres.Dialect()},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			printed := func() string {
				t.Helper()
				var stdout output
				is.NoErr(run(t.Context(), []string{"migrate", "-print", "-db", c.db}, &stdout, &output{}))
				return stdout.String()
			}
			whole := sqlstore.SQL(c.dialect)
			is.Equal(printed(), whole)
			if !isPostgres(c.db) {
				_, err := os.Stat(c.db)
				is.True(os.IsNotExist(err)) // nothing was made
			}
			db := must(sql.Open(c.driver, c.db))
			defer db.Close()
			must(db.Exec(whole))
			is.Equal(printed(), "-- The tables are up to date.\n")
			startServer(t, "-db", c.db, "-keys", filepath.Join(t.TempDir(), "keys"))
			must(db.Exec("INSERT INTO svc_migrations (version) VALUES (1000)"))
			fails(t, "1000", "migrate", "-print", "-db", c.db)
		})
	}
}
