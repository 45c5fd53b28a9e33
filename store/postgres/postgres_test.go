package postgres_test

import (
	"database/sql"
	"errors"
	"runtime"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/storetest"
)

// TestMain runs more tests at once than there are processors, because most wait for the server. A
// test rarely has more than five connections, of the hundred that a server has by default.
func TestMain(m *testing.M) {
	longtest.AtOnce(2 * runtime.GOMAXPROCS(0))
	longtest.Short()
	m.Run()
}

// The suites do not wait for the disk, which is not what they are about.

// Nothing listens here: the suite checks the wake-ups itself.
func TestStore(t *testing.T) {
	t.Parallel()
	url, options := migrated(t), postgres.Options{SynchronousCommit: "off", NoNotify: true}
	db, store := pgtest.Open(t, url), unlimited(open(t, url, options), options)
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, db, store)
		return store
	})
}

// unlimited returns a store for the rules of storetest, which are not about time. Its calls wait for
// the server without a limit: after one late answer the limit also fails the calls of later rules.
func unlimited(store *postgres.Store, options postgres.Options) *postgres.Store {
	dialect := postgres.Dialect()
	dialect.Silence = 0
	if options.NoNotify {
		dialect.Notify = ""
	}
	return postgres.WithDialect(store, dialect)
}

// open opens a store that is closed when the test ends.
func open(t *testing.T, url string, options postgres.Options) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// migrated returns the URL of a new schema with all tables.
func migrated(t *testing.T) string {
	t.Helper()
	url := pgtest.Schema(t)
	store, err := postgres.Open(t.Context(), url, postgres.Options{NoNotify: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return url
}

// empty clears a schema, in a fraction of the time of a new one or of TRUNCATE. Attachments refer
// to policies and come first; the other references cascade.
//
// The stores notice that the database has gone back.
func empty(t *testing.T, db *sql.DB, stores ...svc.Store) {
	t.Helper()
	_, err := db.Exec(`DO $$ DECLARE name TEXT; BEGIN
		FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema()
			AND tablename NOT IN ('svc_migrations', 'svc_generation', 'svc_locks') ORDER BY tablename
		LOOP
			EXECUTE 'DELETE FROM ' || name;
		END LOOP;
		UPDATE svc_generation SET value = 0;
	END $$`)
	for _, store := range stores {
		_, asked := store.Changes(t.Context(), 0)
		err = errors.Join(err, asked)
	}
	if err != nil {
		t.Fatal(err)
	}
}
