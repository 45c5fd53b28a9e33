package postgres_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// starters is how many processes open one new schema at once.
const starters = 8

func TestOpenAtOnceInOneProcess(t *testing.T) {
	t.Parallel()
	for range 5 {
		openAtOnce(t, pgtest.Schema(t), postgres.Options{})
	}
}

func openAtOnce(t *testing.T, url string, options postgres.Options) {
	t.Helper()
	var done sync.WaitGroup
	for range starters {
		done.Go(func() {
			if err := openAndWrite(url, options); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}

func TestOpenAtOnceInManyProcesses(t *testing.T) {
	t.Parallel()
	for range 2 {
		url := pgtest.Schema(t)
		var done sync.WaitGroup
		for range starters {
			done.Go(func() {
				child := exec.Command(os.Args[0], "-test.run=^TestChild$")
				child.Env = append(os.Environ(), "SVC_TEST_URL="+url)
				if out, err := child.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		done.Wait()
	}
}

// TestChild is a process of TestOpenAtOnceInManyProcesses.
func TestChild(t *testing.T) {
	url := os.Getenv("SVC_TEST_URL")
	if url == "" {
		t.Skip("runs in processes that another test starts")
	}
	if err := openAndWrite(url, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
}

func openAndWrite(url string, options postgres.Options) error {
	options.MaxOpen = 2
	store, err := postgres.Open(context.Background(), url, options)
	if err != nil {
		return err
	}
	_, err = store.KeepValue(context.Background(), "name", []byte("value"))
	return errors.Join(err, store.Close())
}

func TestOpenAgainKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Schema(t)
	for i := range 3 {
		store, err := postgres.Open(t.Context(), url, postgres.Options{NoNotify: i == 1})
		is.NoErr(err)
		if i == 0 {
			is.NoErr(addUsers(t.Context(), store, "alice"))
		}
		read, err := readUser(t.Context(), store, "alice")
		is.NoErr(err)
		is.Equal(read, svc.User{ID: "alice"})
		is.NoErr(store.Migrate(t.Context())) // there is nothing to do
		is.NoErr(store.Close())
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := migrated(t)
	_, err := pgtest.Open(t, url).Exec("INSERT INTO svc_migrations (version) VALUES (99)")
	is.NoErr(err)
	_, err = postgres.Open(t.Context(), url, postgres.Options{})
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "version 99"))
}

func TestMigrationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Schema(t)
	db := pgtest.Open(t, url)
	_, err := db.Exec("CREATE TABLE svc_users (mine TEXT)")
	is.NoErr(err)
	_, err = postgres.Open(t.Context(), url, postgres.Options{})
	is.True(err != nil)
	is.Equal(schema(t, url), []string{"svc_users.mine text"})
}

func TestPrintedMigrationsAreTheMigrations(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Schema(t)
	script := sqlstore.SQL(postgres.Dialect())
	_, err := pgtest.Open(t, url).Exec(script)
	is.NoErr(err)
	printed := schema(t, url)
	is.Equal(printed, schema(t, migrated(t)))
	is.True(!strings.ContainsAny(script, "{}"))
	open(t, url, postgres.Options{})
	is.Equal(schema(t, url), printed)
}

func TestMigrationFiles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Schema(t)
	db, files := pgtest.Open(t, url), sqlstore.Migrations(postgres.Dialect())
	names, err := fs.Glob(files, "*")
	is.NoErr(err)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		is.NoErr(err)
		_, err = db.Exec(string(text))
		is.NoErr(err)
	}
	made := schema(t, url)
	is.Equal(made, schema(t, migrated(t)))
	open(t, url, postgres.Options{})
	is.Equal(schema(t, url), made)
}

// The tables of a host's migration tool stay as they are, and cause no conflict.
func TestHostsOwnTables(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Schema(t)
	db := pgtest.Open(t, url)
	tables := []string{"migrations", "schema_migrations", "goose_db_version", "gorp_migrations", "flyway_schema_history", "users", "policies"}
	for _, table := range tables {
		_, err := db.Exec("CREATE TABLE " + table + " (version BIGINT PRIMARY KEY, dirty BOOLEAN); INSERT INTO " + table + " VALUES (7, false)")
		is.NoErr(err)
	}
	is.NoErr(addUsers(t.Context(), open(t, url, postgres.Options{}), "alice"))
	for _, table := range tables {
		var version int
		is.NoErr(db.QueryRow("SELECT version FROM " + table).Scan(&version))
		is.Equal(version, 7)
	}
	var others int
	is.NoErr(db.QueryRow("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND NOT starts_with(tablename, 'svc_')").Scan(&others))
	is.Equal(others, len(tables))
}

// A migration waits for others, and only as long as its context allows.
func TestMigrationWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Schema(t)
	tx, err := pgtest.Open(t, url).Begin()
	is.NoErr(err)
	_, err = tx.Exec(postgres.Dialect().Lock)
	is.NoErr(err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = postgres.Open(ctx, url, postgres.Options{Timeout: 10 * time.Millisecond})
	is.True(errors.Is(err, context.DeadlineExceeded)) // and not the statement's limit
	is.NoErr(tx.Rollback())
	open(t, url, postgres.Options{})
}

// schema lists the columns, indexes and foreign keys of a schema.
func schema(t *testing.T, url string) []string {
	t.Helper()
	rows, err := pgtest.Open(t, url).Query(`
		SELECT table_name || '.' || column_name || ' ' || data_type || COALESCE(' ' || collation_name, '') ||
			CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
		FROM information_schema.columns WHERE table_schema = current_schema()
		UNION ALL SELECT replace(indexdef, schemaname || '.', '') FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
			WHERE connamespace = current_schema()::regnamespace
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	return list
}
