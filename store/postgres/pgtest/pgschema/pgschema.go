// Package pgschema gives tests schemas of PostgreSQL that have all tables and no rows. To make and to drop one
// takes fifty times as long as to empty it, so they stay on the server for later tests, of any process.
package pgschema

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// taken has what this process has taken. A lock of its connection, which ends with the process, keeps each
// schema from other processes.
var taken struct {
	sync.Mutex
	conn   *pgconn.PgConn
	tried  int      // the schemas of these numbers are ours, or another's
	unused []string // ours
}

// Migrated returns the URL of a schema that no other test has until this one ends. A schema whose tables a test
// has changed is made again. Rows and tables that a test has left in one are deleted.
func Migrated(t testing.TB) string {
	t.Helper()
	server := pgtest.Server(t)
	taken.Lock()
	defer taken.Unlock()
	name, err := take(server)
	address := pgtest.With(t, server, "search_path", name)
	if err == nil {
		err = ready(name, address)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		taken.Lock()
		defer taken.Unlock()
		if !t.Failed() { // else it may have left a transaction, which ends with the process
			taken.unused = append(taken.unused, name)
		}
	})
	return address
}

func take(server string) (name string, err error) {
	if last := len(taken.unused) - 1; last >= 0 {
		name, taken.unused = taken.unused[last], taken.unused[:last]
		return name, nil
	}
	if taken.conn == nil {
		if taken.conn, err = pgconn.Connect(context.Background(), server); err != nil {
			return "", err
		}
		if _, err := ask("SET synchronous_commit = off; SET lock_timeout = '1min'"); err != nil {
			return "", err
		}
	}
	for locked := ""; locked != "t" && err == nil; {
		taken.tried++
		locked, err = ask(fmt.Sprintf("SELECT pg_try_advisory_lock(hashtext('svc migrated'), %d)", taken.tried))
	}
	return fmt.Sprint("svc_migrated_", taken.tried), err
}

// ready empties a schema, or makes it: its comment says what its tables are like when nobody has changed them.
func ready(name, address string) error {
	if as, err := emptied(name); err == nil { // there are tables
		said, err := ask("SELECT obj_description('" + name + "'::regnamespace) WHERE " + few + "'" + name + "')")
		if err == nil && as == said {
			return nil
		}
	}
	if _, err := ask("DROP SCHEMA IF EXISTS " + name + " CASCADE; CREATE SCHEMA " + name); err != nil {
		return err
	}
	store, err := postgres.Open(context.Background(), address, postgres.Options{NoNotify: true, Timeout: -1})
	if err != nil {
		return err
	}
	as, err := emptied(name)
	if err == nil {
		_, err = ask("COMMENT ON SCHEMA " + name + " IS '" + as + "'")
	}
	return errors.Join(err, store.Close())
}

// few is a condition with the name of a schema at its end. Dead rows make a schema slow where autovacuum is off.
const few = `20000 > (SELECT COALESCE(SUM(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = `

// Empty is a statement that clears the schema of a connection, in a fraction of the time of TRUNCATE. Attachments
// refer to policies and come first; the other references cascade. Tables of a test are dropped. The locks wait for
// transactions that a test has left.
const Empty = `DO $$ DECLARE name TEXT; BEGIN
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

// emptied clears a schema, and returns its likeness and what the migrations are that made it.
func emptied(schema string) (as string, err error) {
	if _, err = ask("SET search_path = " + schema + "; " + Empty); err != nil {
		return "", err
	}
	as, err = ask(likeness)
	return as + " " + migrations(), err
}

var migrations = sync.OnceValue(func() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(sqlstore.SQL(postgres.Dialect()))))
})

// ask executes statements and returns the only value of the last one, "" for NULL.
func ask(statements string) (value string, err error) {
	results, err := taken.conn.Exec(context.Background(), statements).ReadAll()
	if err != nil {
		return "", err
	}
	if rows := results[len(results)-1].Rows; len(rows) > 0 {
		value = string(rows[0][0])
	}
	return value, nil
}
