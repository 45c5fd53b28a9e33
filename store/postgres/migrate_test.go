package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

func TestOpenAtOnceInOneProcess(t *testing.T) {
	t.Parallel()
	for range longtest.Times(2, 5) {
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
	t.Parallel()
	sqltest.Databases{
		Dialect: postgres.Dialect(), Schema: schema,
		New:     func(t *testing.T) string { return pgtest.Schema(t) },
		Open:    func(t *testing.T, url string) *sql.DB { return pgtest.Open(t, url) },
		Migrate: func(t *testing.T, url string) { open(t, url, postgres.Options{}) },
	}.PrintedMigrations(t)
}

// A migration waits for others of its schema, and for who keeps out all, and only as long as its context
// allows.
func TestMigrationWaits(t *testing.T) {
	is := parallel(t)
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
		await(t, "the server goes on without its client", func() bool { return locksAwaited(t, db) == 0 })
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
