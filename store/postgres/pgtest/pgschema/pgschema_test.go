package pgschema_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
)

// Whatever the test before did, a schema has the tables of the migrations, and nothing else.
func TestMigrated(t *testing.T) {
	var first string
	for _, left := range []string{
		"INSERT INTO svc_kept_values VALUES ('name', 'value')",
		"CREATE TABLE mine (id BIGINT)",
		"ALTER TABLE svc_sources ADD COLUMN mine BIGINT",
		"DROP TABLE svc_migrations",
		"DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE'; END $$",
		"",
	} {
		t.Run(left, func(t *testing.T) {
			is := is.New(t)
			url := pgschema.Migrated(t)
			if first == "" {
				first = url
			}
			is.Equal(url, first)
			db := pgtest.Open(t, url)
			is.Equal(sqltest.Value[int](t, db, "SELECT count(*) FROM svc_kept_values"), 0)
			is.Equal(sqltest.Value[int](t, db, "SELECT count(*) FROM svc_migrations WHERE version = 1"), 1)
			is.Equal(sqltest.Value[int](t, db, `SELECT count(*) FROM information_schema.columns
				WHERE table_schema = current_schema() AND 'mine' IN (table_name, column_name)`), 0)
			_, err := db.Exec(left)
			is.NoErr(err)
		})
	}
}
