package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func TestDemoOnPostgres(t *testing.T) {
	needCurl(t)
	is := is.New(t)
	flags := onPostgres(t)
	server := startServer(t, flags...)
	key, lines := linesWith(server.stdout.String(), "KEY=svcu_"), linesWith(server.stdout.String(), "curl ")
	is.Equal(len(key), 1)
	is.Equal(len(lines), len(demoAnswers))
	for i, line := range lines {
		answer := paste(t, key[0], line)
		for _, part := range demoAnswers[i] {
			if !strings.Contains(answer, part) {
				t.Errorf("%s\nanswered %swhich lacks %s", line, answer, part)
			}
		}
	}
	is.True(strings.Contains(server.stdout.String(), "KEY=$("+word(os.Args[0])+" key -db "+word(flags[1])+" -keys "+flags[3]+" -user admin)\n"))
	server.wants(t, 200, issueKey(t, append(flags, "-user", "alice")...), "GET", "/ext/svc/me/api-keys", "")
}

func TestRestartOnPostgresKeepsEverything(t *testing.T) {
	is := is.New(t)
	flags := onPostgres(t)
	first := startServer(t, flags...)
	key := first.key()
	first.wants(t, 200, key, "POST", "/ext/svc/admin/templates", `{"id": "a", "name": "A", "manifest": {"version": "1", "n": 1.0}}`)
	before := map[string]string{}
	for _, path := range everything {
		before[path] = first.wants(t, 200, key, "GET", path, "")
	}
	is.NoErr(first.stop(t))

	second := startServer(t, flags...)
	for _, path := range everything {
		after := second.wants(t, 200, key, "GET", path, "")
		is.Equal(after, before[path])
	}
	is.True(!strings.Contains(second.stdout.String(), "svcu_")) // only the first start prints a key
	is.True(!strings.Contains(second.stderr.String(), "level=WARN"))
}

// Two servers share a database, as in an upgrade without downtime.
func TestTwoServersOnPostgres(t *testing.T) {
	is := is.New(t)
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
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := two.get(t, key, "/ext/svc/me/api-keys"); status == 401 {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the other server still accepts a revoked key")
		}
	}
}

func TestPostgresThatIsNotThere(t *testing.T) {
	is := is.New(t)
	t.Chdir(t.TempDir())
	err := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", "postgres://u:Hunter2Secret@127.0.0.1:1/svc?sslmode=disable"}, &output{}, &output{})
	is.Equal(exitCode(err, &output{}), 1)
	is.True(strings.Contains(err.Error(), `database "svc" on 127.0.0.1:1`))
	is.True(!strings.Contains(err.Error(), "Hunter2Secret"))
	files, err := os.ReadDir(".")
	is.NoErr(err)
	is.Equal(len(files), 0) // it creates no keys file
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
	for name, c := range map[string]struct {
		db, driver string
		dialect    sqlstore.Dialect
	}{
		"SQLite":     {newDB(t), "sqlite", sqlite.Dialect()},
		"PostgreSQL": {pgtest.Schema(t), "pgx", postgres.Dialect()},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
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
			db, err := sql.Open(c.driver, c.db)
			is.NoErr(err)
			defer db.Close()
			_, err = db.Exec(whole)
			is.NoErr(err)
			is.Equal(printed(), "-- The tables are up to date.\n")
			startServer(t, "-db", c.db, "-keys", filepath.Join(t.TempDir(), "keys"))
			_, err = db.Exec("INSERT INTO svc_migrations (version) VALUES (1000)")
			is.NoErr(err)
			fails(t, "1000", "migrate", "-print", "-db", c.db)
		})
	}
}

func TestMigrationsOfAServerThatIsNotThere(t *testing.T) {
	is := is.New(t)
	err := run(t.Context(), []string{"migrate", "-print", "-db", "postgres://u:Hunter2Secret@127.0.0.1:1/svc?sslmode=disable"}, &output{}, &output{})
	is.Equal(exitCode(err, &output{}), 1)
	is.True(strings.Contains(err.Error(), `database "svc" on 127.0.0.1:1`))
	is.True(!strings.Contains(err.Error(), "Hunter2Secret"))
}
