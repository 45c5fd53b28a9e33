package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// schemaOf returns the schema that a URL of pgtest names.
func schemaOf(t *testing.T, address string) string {
	return must(url.Parse(address)).Query().Get("search_path")
}

// starts are all ways to come to tables.
var starts = map[string]func(t *testing.T, address string) error{
	"Open": func(t *testing.T, address string) error {
		return closed(postgres.Open(t.Context(), address, patiently(postgres.Options{})))
	},
	"Open through a pooler": func(t *testing.T, address string) error {
		return closed(postgres.Open(t.Context(), address, patiently(postgres.Options{Pooler: true})))
	},
	"OpenTenants": func(t *testing.T, address string) error {
		return closed(postgres.OpenTenants(t.Context(), address, patiently(postgres.Options{})))
	},
	"Pending": func(t *testing.T, address string) error {
		return failure(postgres.Pending(t.Context(), address, patiently(postgres.Options{})))
	},
	"New": func(t *testing.T, address string) error {
		pool := newPool(t, address)
		defer pool.Close()
		return closed(postgres.New(t.Context(), pool, patiently(postgres.Options{})))
	},
	"NewTenants": func(t *testing.T, address string) error {
		pool := newPool(t, address)
		defer pool.Close()
		return closed(postgres.NewTenants(t.Context(), pool, patiently(postgres.Options{})))
	},
	"Migrate of sqlstore": func(t *testing.T, address string) error {
		db := pgtest.Open(t, address)
		return sqlstore.New(db, db, postgres.Dialect()).Migrate(t.Context())
	},
	"Pending of sqlstore": func(t *testing.T, address string) error {
		return failure(sqlstore.Pending(t.Context(), pgtest.Open(t, address), postgres.Dialect()))
	},
}

func closed(opened io.Closer, err error) error {
	if err != nil {
		return err
	}
	return opened.Close()
}

// Tables that only a later schema of the search path has belong to another deployment. No way to
// start takes them for its own, or makes others.
func TestTablesOfAnotherDeployment(t *testing.T) {
	is := long(t, "tables of another deployment")
	prod, staging := pgtest.Schema(t), pgtest.Schema(t)
	is.NoErr(must(postgres.OpenTenants(t.Context(), prod, patiently(postgres.Options{NoNotify: true}))).Close())
	first, later := schemaOf(t, staging), schemaOf(t, prod)
	both := pgtest.With(t, staging, "search_path", first+","+later)
	for name, start := range starts {
		err := start(t, both)
		expect.Holds(t, err != nil && strings.Contains(err.Error(), first) && strings.Contains(err.Error(), later), name, ": ", err)
	}
	is.Equal(sqltest.Value[int](t, pgtest.Open(t, staging), `SELECT COUNT(*) FROM pg_tables WHERE schemaname = $1`, first), 0)
	// With tables in the first schema, nothing of the later one counts: the list of tenants neither.
	db := pgtest.Open(t, both)
	is.NoErr(starts["Open"](t, staging))
	_, err := sqlstore.NewRegistry(t.Context(), sqlstore.New(db, db, postgres.Dialect()))
	is.True(err != nil && strings.Contains(err.Error(), first) && strings.Contains(err.Error(), later))
	for name, start := range starts {
		expect.Equal(t, name, start(t, both), nil)
	}
	is.Equal(sqltest.Value[int](t, db, `SELECT COUNT(*) FROM pg_tables WHERE schemaname = $1 AND tablename = 'svc_tenants'`, first), 1)
}

// A schema of the search path that does not exist is left out, such as "$user" by default.
func TestSchemaThatIsMissing(t *testing.T) {
	long(t, "a search path with a schema that is missing")
	prod := migrated(t)
	path := pgtest.With(t, prod, "search_path", `"$user",`+schemaOf(t, prod))
	for name, start := range starts {
		expect.Equal(t, name, start(t, path), nil)
		err := start(t, pgtest.With(t, prod, "search_path", "no_such_schema"))
		expect.Holds(t, err != nil && strings.Contains(err.Error(), "no schema of the search path exists"), name, ": ", err)
	}
}

// A schema that the role may no longer use is not searched. The start must not make new tables in the next one.
func TestSchemaThatMayNotBeUsed(t *testing.T) {
	is := long(t, "a schema that is closed")
	owner := pgtest.Database(t)
	db := pgtest.Open(t, owner)
	for _, schema := range []string{`mine`, `"MineToo"`, `"$user"`} {
		name := strings.Trim(schema, `"`)
		if name == "$user" {
			name = sqltest.Value[string](t, db, "SELECT current_user")
		}
		must(db.Exec(`CREATE SCHEMA "` + name + `"`))
		path := pgtest.With(t, owner, "search_path", "missing, "+schema+",public")
		path = pgtest.With(t, path, "standard_conforming_strings", "off") // a backslash would mean more
		is.NoErr(starts["Open"](t, path))
		_, err := db.Exec(`REVOKE ALL ON SCHEMA "` + name + `" FROM CURRENT_USER`)
		is.NoErr(err)
		for _, start := range []string{"Open", "Pending"} {
			err = starts[start](t, path)
			expect.Holds(t, err != nil && strings.Contains(err.Error(), strconv.Quote(name)) && strings.Contains(err.Error(), "grant USAGE"),
				start, ", ", schema, ": ", err)
		}
	}
	is.True(!sqltest.Value[bool](t, db, "SELECT to_regclass('public.svc_migrations') IS NOT NULL"))
	// A role that may not read the version is not told to get the right to make tables.
	owner = pgtest.With(t, owner, "search_path", "public")
	is.NoErr(starts["Open"](t, owner))
	must(db.Exec("REVOKE ALL ON public.svc_migrations FROM CURRENT_USER; REVOKE CREATE ON SCHEMA public FROM pg_database_owner"))
	err := starts["Open"](t, owner)
	is.True(err != nil && strings.Contains(err.Error(), "for table svc_migrations"))
}

// The search path matters at the start alone: a Store, its listener and its transactions stay with
// the tables that it found then.
func TestSearchPathThatChanges(t *testing.T) {
	is := long(t, "a search path that changes")
	mine, other := migrated(t), migrated(t)
	moved := newPool(t, mine, func(config *pgxpool.Config) { config.MaxConns = 1 })
	store := over(t, moved, postgres.Options{})
	must(moved.Exec(t.Context(), "SET search_path = "+schemaOf(t, other)))
	is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	tx := must(moved.Begin(t.Context()))
	is.NoErr(sqltest.AddUsers(t.Context(), store.Tx(tx), "bob"))
	is.NoErr(tx.Commit(t.Context()))
	begun := must(store.DB().BeginTx(t.Context(), nil))
	is.NoErr(sqltest.AddUsers(t.Context(), sqlstore.Tx(begun, store.Dialect()), "carol"))
	is.NoErr(begun.Commit())
	for url, users := range map[string]string{mine: "alice bob carol", other: ""} {
		is.Equal(strings.Join(sqltest.Column(t, pgtest.Open(t, url), `SELECT id FROM svc_users ORDER BY id`), " "), users)
	}
}

// Migrate makes the schema, and needs no right on the database when it is there.
func TestMigrateMakesSchema(t *testing.T) {
	is := parallel(t)
	owner := pgtest.Database(t) // no superuser
	dialect, db := postgres.Dialect(), pgtest.Open(t, owner)
	dialect.Schema = `new "one"`
	script := must(sqlstore.Pending(t.Context(), db, dialect))
	is.True(strings.HasPrefix(script, `CREATE SCHEMA IF NOT EXISTS "new ""one"""`))
	for range 2 {
		store := sqlstore.New(db, db, dialect)
		is.NoErr(store.Migrate(t.Context()))
		is.NoErr(sqltest.AddUsers(t.Context(), store, "alice"))
	}
	must(sqlstore.NewRegistry(t.Context(), sqlstore.New(db, db, dialect)))
	dialect.Schema = "made"
	for _, statement := range []string{
		"CREATE SCHEMA made", "DO $$ BEGIN EXECUTE format('REVOKE CREATE ON DATABASE %I FROM %I', current_database(), current_user); END $$",
	} {
		must(db.Exec(statement))
	}
	must(sqlstore.Pending(t.Context(), db, dialect))
	is.NoErr(sqlstore.New(db, db, dialect).Migrate(t.Context()))
}

func TestOpenAtOnceInOneProcess(t *testing.T) {
	long(t, "stores that migrate at once")
	for range 5 {
		openAtOnce(t, pgtest.Schema(t), postgres.Options{})
	}
}

func openAtOnce(t *testing.T, url string, options postgres.Options) {
	t.Helper()
	options = patiently(options)
	options.MaxOpen = 2
	sqltest.OpenAtOnce(t, func() error {
		return sqltest.KeepAndClose(postgres.Open(context.Background(), url, options))
	})
}

func TestPrintedMigrationsAreTheMigrations(t *testing.T) {
	long(t, "that printed migrations are the migrations")
	sqltest.Databases{
		Dialect: postgres.Dialect(), Schema: schema,
		New:     func(t *testing.T) string { return pgtest.Schema(t) },
		Open:    func(t *testing.T, url string) *sql.DB { return pgtest.Open(t, url) },
		Migrate: func(t *testing.T, url string) { open(t, url, postgres.Options{}) },
	}.PrintedMigrations(t)
}

// A migration waits for others of its schema, and for who keeps out all, and only as long as its context allows.
func TestMigrationWaits(t *testing.T) {
	is := long(t, "a migration that waits")
	url, other := pgtest.With(t, pgtest.Schema(t), "application_name", rand.Text()), pgtest.Schema(t)
	limited := pgtest.With(t, url, "lock_timeout", "10ms") // as a role may have it
	db := pgtest.Open(t, url)
	all := "SELECT pg_advisory_xact_lock(1937138481), $1::TEXT"
	for _, lock := range []string{postgres.Dialect().Lock, all} {
		tx := must(db.Begin())
		must(tx.Exec(lock, ""))
		ctx, leave := context.WithCancel(t.Context())
		opened := make(chan error, 1)
		go func() {
			opened <- closed(postgres.Open(ctx, limited, postgres.Options{Timeout: 10 * time.Millisecond}))
		}()
		awaitLock(t, db)
		time.Sleep(50 * time.Millisecond) // the limits of a statement are none of a migration
		is.Equal(locksAwaited(t, db), 1)
		leave()
		is.True(errors.Is(<-opened, context.Canceled))
		expect.Soon(t, "the server goes on without its client", func() bool { return locksAwaited(t, db) == 0 })
		if lock != all {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			is.NoErr(closed(postgres.Open(ctx, other, postgres.Options{})))
		}
		is.NoErr(tx.Rollback())
	}
	open(t, url, postgres.Options{})
}

// schema lists the columns, indexes and foreign keys of a schema.
func schema(t *testing.T, url string) []string {
	t.Helper()
	return sqltest.Column(t, pgtest.Open(t, url), `
		SELECT table_name || '.' || column_name || ' ' || data_type || COALESCE(' ' || collation_name, '') ||
			CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
		FROM information_schema.columns WHERE table_schema = current_schema()
		UNION ALL SELECT replace(indexdef, schemaname || '.', '') FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
			WHERE connamespace = current_schema()::regnamespace
		ORDER BY 1`)
}
