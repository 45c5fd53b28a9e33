package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

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
