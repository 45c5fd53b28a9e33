package postgres_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

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

func openAndWrite(url string, options postgres.Options) error {
	options.MaxOpen = 2
	store, err := postgres.Open(context.Background(), url, options)
	if err != nil {
		return err
	}
	_, err = store.KeepValue(context.Background(), "name", []byte("value"))
	return errors.Join(err, store.Close())
}

// The script, and the files one after the other, make the same tables, and opening the store then changes
// nothing.
func TestPrintedMigrationsAreTheMigrations(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	script, files := sqlstore.SQL(postgres.Dialect()), sqlstore.Migrations(postgres.Dialect())
	is.True(!strings.ContainsAny(script, "{}"))
	names, err := fs.Glob(files, "*")
	is.NoErr(err)
	var texts []string
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		is.NoErr(err)
		texts = append(texts, string(text))
	}
	want := schema(t, migrated(t))
	for _, printed := range [][]string{{script}, texts} {
		url := pgtest.Schema(t)
		for _, text := range printed {
			_, err := pgtest.Open(t, url).Exec(text)
			is.NoErr(err)
		}
		is.Equal(schema(t, url), want)
		open(t, url, postgres.Options{})
		is.Equal(schema(t, url), want)
	}
}

// A migration waits for others of its schema, and for who keeps out all, and only as long as its context
// allows.
func TestMigrationWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url, other := pgtest.Schema(t), pgtest.Schema(t)
	openFor := func(url string, longest time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		return closed(postgres.Open(ctx, url, postgres.Options{Timeout: 10 * time.Millisecond}))
	}
	all := "SELECT pg_advisory_xact_lock(1937138481), $1::TEXT"
	for _, lock := range []string{postgres.Dialect().Lock, all} {
		tx, err := pgtest.Open(t, url).Begin()
		is.NoErr(err)
		_, err = tx.Exec(lock, "")
		is.NoErr(err)
		err = openFor(url, 100*time.Millisecond)
		is.True(errors.Is(err, context.DeadlineExceeded)) // and not the statement's limit
		if lock != all {
			is.NoErr(openFor(other, time.Minute))
		}
		is.NoErr(tx.Rollback())
	}
	is.NoErr(openFor(url, time.Minute))
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
