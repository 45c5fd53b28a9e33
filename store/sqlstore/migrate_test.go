package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/matryer/is"
)

// plant replaces the migrations by these texts for the time of the test.
func plant(t *testing.T, texts ...string) {
	planted, own := fstest.MapFS{}, migrationFiles
	for i, text := range texts {
		planted[fmt.Sprintf("migrations/%04d.sql", i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	migrationFiles = planted
	t.Cleanup(func() { migrationFiles = own })
}

// A database gets the migrations that it lacks, each in one transaction, and each once.
func TestMigrateRunsWhatIsLacking(t *testing.T) {
	is := is.New(t)
	server := &versions{}
	db := sql.OpenDB(server)
	defer db.Close()
	store := New(db, db, Dialect{Text: "TEXT"})
	first := []string{"CREATE TABLE a (x TEXT)", "CREATE TABLE b (y TEXT)"}
	second := []string{"CREATE TABLE c (z TEXT)"}

	plant(t, "CREATE TABLE a (x {text});\nCREATE TABLE b (y {text});\n")
	is.NoErr(store.Migrate(t.Context()))
	is.Equal(server.written, first)
	is.NoErr(store.Migrate(t.Context())) // there is nothing to do
	is.Equal(server.written, first)

	plant(t, "not run again;\n", "CREATE TABLE c (z {text});\n", "CREATE TABLE d (FAULT);\n")
	pending, err := Pending(t.Context(), db, Dialect{Text: "TEXT"})
	is.NoErr(err)
	is.True(strings.HasPrefix(pending, "\nCREATE TABLE c (z TEXT);\n"))
	is.True(!strings.Contains(pending, "not run again"))
	err = store.Migrate(t.Context())
	is.True(err != nil && strings.Contains(err.Error(), "after version 2"))
	is.Equal(server.written, slices.Concat(first, second)) // the third is undone, the second stays
	is.Equal(server.version, 2)

	plant(t, "older;\n") // an older program
	is.True(store.Migrate(t.Context()) != nil)
	_, err = Pending(t.Context(), db, Dialect{})
	is.True(err != nil)
}

// versions is a database that keeps its version, and the statements of committed transactions.
type versions struct {
	version int
	written []string

	raised int // the version, and the statements, of the transaction
	runs   []string
}

func (v *versions) Connect(context.Context) (driver.Conn, error) { return v, nil }
func (v *versions) Driver() driver.Driver                        { return nil }
func (v *versions) Close() error                                 { return nil }
func (v *versions) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }

func (v *versions) Begin() (driver.Tx, error) {
	v.raised, v.runs = v.version, nil
	return v, nil
}

func (v *versions) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return v.Begin() }
func (v *versions) Rollback() error                                              { return nil }

func (v *versions) Commit() error {
	v.version, v.written = v.raised, append(v.written, v.runs...)
	return nil
}

func (v *versions) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	switch query = strings.TrimSpace(query); {
	case strings.Contains(query, "FAULT"):
		return nil, errors.New("a planted fault")
	case strings.HasPrefix(query, "INSERT INTO svc_migrations"):
		fmt.Sscanf(query, "INSERT INTO svc_migrations (version) VALUES (%d)", &v.raised)
	case query != versionTable:
		v.runs = append(v.runs, query)
	}
	return driver.RowsAffected(1), nil
}

func (v *versions) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &oneNumber{int64(max(v.version, v.raised))}, nil
}

// oneNumber is a result of one row.
type oneNumber struct{ left int64 }

func (*oneNumber) Columns() []string { return []string{"n"} }
func (*oneNumber) Close() error      { return nil }

func (r *oneNumber) Next(row []driver.Value) error {
	if r.left < 0 {
		return io.EOF
	}
	row[0], r.left = r.left, -1
	return nil
}

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
