package sqlstore

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

// The texts of migrations say which tables, columns and keys there are.
func TestTablesOfMigrations(t *testing.T) {
	is := is.New(t)
	list := tables([]string{`CREATE TABLE a (
  id {text} NOT NULL PRIMARY KEY,
  data {bytes},
  sum BIGINT GENERATED ALWAYS AS (COALESCE(id, 0)) STORED
);

CREATE INDEX a_data ON a (data);

CREATE TABLE b (
  id {text} NOT NULL REFERENCES a (id) ON DELETE CASCADE,
  number BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (id, number),
  FOREIGN KEY (id) REFERENCES a (id)
);

INSERT INTO b (id) VALUES ('x'), ('y');
`, `ALTER TABLE a ADD COLUMN note {text} NOT NULL DEFAULT '';

CREATE TABLE c (
  id BIGINT NOT NULL PRIMARY KEY
);
`})
	is.Equal(len(list), 3)
	is.Equal(*list[0], table{
		name: "a", columns: []column{{"id", "{text}"}, {"data", "{bytes}"}, {"note", "{text}"}}, key: []string{"id"},
	})
	is.Equal(*list[1], table{
		name: "b", columns: []column{{"id", "{text}"}, {"number", "BIGINT"}}, key: []string{"id", "number"}, seeded: true,
	})
	is.Equal(*list[2], table{name: "c", columns: []column{{"id", "BIGINT"}}, key: []string{"id"}})
}

// Every table of the migrations has columns of known types and a key of them.
func TestTablesAreComplete(t *testing.T) {
	is := is.New(t)
	list := tables(migrationTexts())
	is.True(len(list) > 20)
	for _, table := range list {
		is.True(strings.HasPrefix(table.name, "svc_"))
		is.True(len(table.key) > 0)
		is.Equal(len(table.keyOf(make([]any, len(table.columns)))), len(table.key))
		for _, c := range table.columns {
			is.True(c.kind == "{text}" || c.kind == "{bytes}" || c.kind == "BIGINT" || c.kind == "DOUBLE" || c.kind == serial)
		}
	}
}
