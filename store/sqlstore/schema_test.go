package sqlstore

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
)

func TestQualifiedStatements(t *testing.T) {
	is := is.New(t)
	in := Dialect{Schema: `a"b`}.schema()
	for statement, want := range map[string]string{
		"SELECT svc_users.id FROM svc_users":               `SELECT "a""b".svc_users.id FROM "a""b".svc_users`,
		"DROP INDEX svc_users_by":                          `DROP INDEX "a""b".svc_users_by`,
		"CREATE INDEX svc_users_by ON svc_users (id)":      `CREATE INDEX svc_users_by ON "a""b".svc_users (id)`,
		`SELECT 'svc_' || "svc_x", x.svc_y, mysvc_z`:       `SELECT 'svc_' || "svc_x", x.svc_y, mysvc_z`,
		"asvc_x zsvc_x Asvc_x Zsvc_x 0svc_x 9svc_x _svc_x": "asvc_x zsvc_x Asvc_x Zsvc_x 0svc_x 9svc_x _svc_x",
		`SELECT 'it''s svc_users' FROM svc_users`:          `SELECT 'it''s svc_users' FROM "a""b".svc_users`,
		`INSERT INTO "a""b".svc_users SELECT * FROM svc_u`: `INSERT INTO "a""b".svc_users SELECT * FROM "a""b".svc_u`,
	} {
		is.Equal(in.qualify(statement), want)
		is.Equal(schema("").qualify(statement), statement)
	}
}

func FuzzDecodeList(f *testing.F) {
	for _, seed := range []string{
		`[]`, `null`, `[""]`, `["a"]`, `["a","b"]`, `["",""]`, `["a,b","c"]`, `["a\"b"]`, `["\u003c"]`, `["é","🧠"]`,
		`["a"]["b"]`, `["a","b"`, `["a" ,"b"]`, `[1]`, ``, `["`, `["]`, `["a"x"b"]`, `["","`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, plain := cutList([]byte(text))
		if !plain || !utf8.ValidString(text) { // encodeList writes valid UTF-8
			return
		}
		var want []string
		if err := json.Unmarshal([]byte(text), &want); err == nil && !slices.Equal(list, want) {
			t.Errorf("%q is cut into %q, want %q", text, list, want)
		}
	})
}

func TestListsComeBack(t *testing.T) {
	for _, list := range [][]string{{}, {""}, {"a", "b"}, {`"`, `\`, "<", "a,b", "\n", "\u2028"}, {"é", "🧠", ""}} {
		back, err := decodeList([]byte(encodeList(list)))
		if err != nil || !slices.Equal(back, list) || back == nil {
			t.Errorf("%q comes back as %q: %v", list, back, err)
		}
	}
	if _, err := decodeList([]byte(`["a`)); err == nil {
		t.Error("half a list is no error")
	}
}

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
