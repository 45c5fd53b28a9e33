package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
)

// newlyMigrated returns the URL of a new schema with all tables.
func newlyMigrated(t *testing.T) string {
	t.Helper()
	url := pgtest.Schema(t)
	is.New(t).NoErr(closed(postgres.Open(t.Context(), url, patiently(postgres.Options{NoNotify: true}))))
	return url
}

// madeSchema is a schema with all tables.
type madeSchema struct {
	url  string
	as   string // what it is like when it is empty
	drop func() error
}

// madeSchemas are schemas that no test uses. Each is for one test after the other: to make and to drop
// its tables takes fifty times as long as to empty them.
type madeSchemas struct {
	mu    sync.Mutex
	list  []madeSchema
	lists madeSchema   // the database of listURL
	made  atomic.Int64 // schemas in it
	conns sync.Pool    // of emptied
}

var unused madeSchemas

// migrated returns the URL of a schema with all tables and no rows. Its connections have a name of their own, as
// locksAwaited needs. Tables that autovacuum must not have seen, or of which another test must not know, need
// newlyMigrated.
func migrated(t *testing.T) string {
	t.Helper()
	schema, name := unused.take(t), rand.Text()
	t.Cleanup(func() {
		if t.Failed() { // it may have left a transaction
			admin := pgtest.Open(t, pgtest.Server(t))
			if _, err := admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name); err != nil {
				t.Error(err)
			}
		}
		// What has changed the tables is not for the next test.
		if as, err := emptied(schema.url); err == nil && as == schema.as {
			unused.put(schema)
		} else if err := errors.Join(err, schema.drop()); err != nil {
			t.Error(err)
		}
	})
	return pgtest.With(t, schema.url, "application_name", name)
}

func (s *madeSchemas) take(t *testing.T) (schema madeSchema) {
	t.Helper()
	s.mu.Lock()
	if last := len(s.list) - 1; last >= 0 {
		schema, s.list = s.list[last], s.list[:last]
	}
	s.mu.Unlock()
	if schema.url != "" {
		return schema
	}
	schema.url, schema.drop = pgtest.NewSchema(t)
	err := closed(postgres.Open(t.Context(), schema.url, patiently(postgres.Options{NoNotify: true})))
	if err == nil {
		schema.as, err = emptied(schema.url)
	}
	if err != nil {
		t.Fatal(errors.Join(err, schema.drop()))
	}
	return schema
}

func (s *madeSchemas) put(schema madeSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, schema)
}

// drop drops what outlives the tests, after all of them.
func (s *madeSchemas) drop() (err error) {
	for _, schema := range s.list {
		err = errors.Join(err, schema.drop())
	}
	if s.lists.drop != nil {
		err = errors.Join(err, s.lists.drop())
	}
	return err
}

// listURL returns the URL of a new, empty schema for a list of tenants, in a database that many tests
// share. Its role is no superuser.
func listURL(t *testing.T) string {
	t.Helper()
	lists := unused.database(t)
	name := fmt.Sprint("list", unused.made.Add(1))
	must(pgtest.Open(t, lists).Exec("CREATE SCHEMA " + name))
	return pgtest.With(t, lists, "search_path", name)
}

func (s *madeSchemas) database(t *testing.T) (url string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists.url == "" {
		s.lists.url, s.lists.drop = pgtest.NewDatabase(t)
	}
	return s.lists.url
}

// emptying clears a schema, in a fraction of the time of TRUNCATE. Attachments refer to policies and come
// first; the other references cascade. What a test has made itself goes. The locks wait for transactions that
// a test has left behind.
const emptying = `DO $$ DECLARE name TEXT; BEGIN
	DISCARD PLANS; -- see sqlstore.Dialect.Replan
	FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema()
		AND tablename NOT IN ('svc_migrations', 'svc_generation', 'svc_locks') ORDER BY tablename
	LOOP
		IF name LIKE 'svc\_%' THEN
			EXECUTE 'LOCK TABLE ' || name || ' IN EXCLUSIVE MODE; DELETE FROM ' || name;
		ELSE
			EXECUTE 'DROP TABLE ' || name;
		END IF;
	END LOOP;
	UPDATE svc_generation SET value = 0;
	PERFORM setval(oid::regclass, 1, false) FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S';
END $$`

// likeness tells whether anything of a schema but its rows was changed, made or dropped. A change gives a
// row of the catalogue another xmin; autovacuum does not.
const likeness = `SELECT md5(string_agg(of, ' ' ORDER BY of)) FROM (
	SELECT concat_ws(' ', oid, xmin) AS of FROM pg_class WHERE relnamespace = current_schema()::regnamespace
	UNION ALL SELECT concat_ws(' ', attrelid, attnum, a.xmin) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
		WHERE relnamespace = current_schema()::regnamespace
	UNION ALL SELECT oid::TEXT FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
	UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_namespace WHERE nspname = current_schema()
	UNION ALL SELECT version::TEXT FROM svc_migrations
	UNION ALL SELECT name FROM svc_locks
	UNION ALL SELECT concat_ws(' ', id, value) FROM svc_generation) AS everything`

// emptied clears a schema, and returns its likeness. Its connection has no schema of its own, and serves the
// next test as well.
func emptied(address string) (as string, err error) {
	ctx := context.Background() // that of the test has ended
	in, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	query := in.Query()
	schema := query.Get("search_path")
	query.Del("search_path")
	in.RawQuery = query.Encode()
	conn, _ := unused.conns.Get().(*pgconn.PgConn)
	if conn == nil {
		if conn, err = pgconn.Connect(ctx, in.String()); err != nil {
			return "", err
		}
	}
	results, err := conn.Exec(ctx, "SET search_path = "+schema+"; SET synchronous_commit = off; "+emptying+"; "+likeness).ReadAll()
	if err != nil {
		return "", errors.Join(err, conn.Close(ctx))
	}
	unused.conns.Put(conn)
	return string(results[3].Rows[0][0]), nil
}

// empty clears a schema. The stores notice that the database has gone back.
func empty(t *testing.T, db *sql.DB, stores ...svc.Store) {
	t.Helper()
	_, err := db.Exec(emptying)
	for _, store := range stores {
		_, asked := store.Changes(t.Context(), 0)
		err = errors.Join(err, asked)
	}
	is.New(t).NoErr(err)
}
