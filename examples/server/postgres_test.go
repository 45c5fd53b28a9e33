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

// Two servers share a database, as in an upgrade without downtime.
func TestTwoServersOnPostgres(t *testing.T) {
	is := parallel(t)
	flags := []string{"-db", pgtest.Schema(t), "-keys", filepath.Join(t.TempDir(), "svc.keys")}
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

// migrate prints the SQL that a database lacks: all, or nothing. After that SQL, the server migrates nothing. With
// -all it prints the SQL for an empty database, and opens none.
func TestMigrationsArePrinted(t *testing.T) {
	t.Parallel()
	for driver, c := range map[string]struct {
		db, none string
		dialect  sqlstore.Dialect
	}{
		"sqlite": {newDB(t), "none.db", sqlite.Dialect()},
		"pgx":    {pgtest.Schema(t), "postgres://u:p@127.0.0.1:1/none", postgres.Dialect()},
	} {
		t.Run(driver, func(t *testing.T) {
			is, whole := parallel(t), sqlstore.SQL(c.dialect)
			is.Equal(does(t, "migrate", "-print", "-all", "-db", c.none), whole)
			is.Equal(does(t, "migrate", "-print", "-db", c.db), whole)
			for _, db := range []string{c.none, c.db} { // nothing was made
				_, err := os.Stat(db)
				is.True(os.IsNotExist(err))
			}
			db := must(sql.Open(driver, c.db))
			defer db.Close()
			must(db.Exec(whole))
			is.Equal(does(t, "migrate", "-print", "-db", c.db), "-- The tables are up to date.\n")
			startServer(t, "-db", c.db, "-keys", filepath.Join(t.TempDir(), "keys"))
			must(db.Exec("INSERT INTO svc_migrations (version) VALUES (1000)"))
			fails(t, "1000", "migrate", "-print", "-db", c.db)
		})
	}
}
