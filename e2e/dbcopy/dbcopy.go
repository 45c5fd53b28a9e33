// Package dbcopy checks that a copy of a database has the same rows. [Fill] puts odd values into
// every column of every table. [Rows] reads all rows, and [Difference] compares them. They know the
// tables from the database itself, so a table or a column of a later migration is part of the
// check.
package dbcopy

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Table is a table of a SQLite database.
type Table struct {
	Name    string
	columns []column
	parents []parent
}

type column struct {
	name, kind string
	nullable   bool
	key        bool // part of the primary key
	generated  bool
}

// parent is a foreign key: the columns and those of the table that they refer to.
type parent struct {
	table    string
	from, to []string
}

// kept are the tables whose rows the migrations make.
var kept = []string{"svc_locks", "svc_generation", "svc_migrations"}

// Tables returns the tables of a SQLite database of which rows are copied; a table is behind those
// that it refers to.
func Tables(t testing.TB, db *sql.DB) (tables []Table) {
	t.Helper()
	names := query(t, db, `SELECT name FROM sqlite_master
		WHERE type = 'table' AND name LIKE 'svc\_%' ESCAPE '\'
		AND name <> 'svc_changefeed' ORDER BY rowid`)
	for _, name := range names {
		table := Table{Name: name[0].(string)}
		for _, c := range query(t, db, `SELECT name, type, "notnull", pk, hidden
			FROM pragma_table_xinfo($1)`, name[0]) {
			table.columns = append(table.columns, column{
				name: c[0].(string), kind: c[1].(string), nullable: c[2] == int64(0),
				key: c[3] != int64(0), generated: c[4] != int64(0),
			})
		}
		byID := map[any]*parent{}
		for _, f := range query(t, db, `SELECT id, "table", "from", "to"
			FROM pragma_foreign_key_list($1) ORDER BY id, seq`, name[0]) {
			p := byID[f[0]]
			if p == nil {
				p = &parent{table: f[1].(string)}
				byID[f[0]] = p
			}
			p.from, p.to = append(p.from, f[2].(string)), append(p.to, f[3].(string))
		}
		for _, p := range byID {
			table.parents = append(table.parents, *p)
		}
		tables = append(tables, table)
	}
	return tables
}

// Columns returns the names of all columns, as "table.column".
func Columns(tables []Table) (names []string) {
	for _, table := range tables {
		for _, c := range table.columns {
			names = append(names, table.Name+"."+c.name)
		}
	}
	slices.Sort(names)
	return names
}

// Rows returns the rows of each table, sorted. The name of PostgreSQL's channel is not among them.
func Rows(t testing.TB, db *sql.DB, tables []Table) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range tables {
		var names, values []string
		for _, c := range table.columns {
			value := c.name
			if table.Name == "svc_audit_queue" && c.name == "seq" { // a copy keeps the order only
				value = `ROW_NUMBER() OVER (ORDER BY seq)`
			}
			names, values = append(names, c.name), append(values, value)
		}
		from := ` FROM ` + table.Name
		if table.Name == "svc_generation" { // PostgreSQL has more rows, whose sum counts
			from = ` FROM (SELECT 1 AS id, CAST(SUM(value) AS BIGINT) AS value
				FROM svc_generation) g`
		}
		if table.Name == "svc_kept_values" {
			from += ` WHERE name <> 'channel'`
		}
		lines := []string{}
		for _, row := range query(t, db, `SELECT `+strings.Join(values, ", ")+from) {
			lines = append(lines, line(names, row))
		}
		slices.Sort(lines)
		all[table.Name] = lines
	}
	return all
}

// line shows a row; values of different types differ.
func line(names []string, row []any) string {
	var b strings.Builder
	for i, value := range row {
		fmt.Fprintf(&b, "%s=%T %x ", names[i], value, value)
	}
	return b.String()
}

// Difference returns the first difference between the rows of two databases, "" when there is none.
func Difference(want, have map[string][]string) string {
	for name, rows := range want {
		for i, row := range rows {
			if i >= len(have[name]) || have[name][i] != row {
				return fmt.Sprintf("%s has %d rows and should have %d, among them %.600s",
					name, len(have[name]), len(rows), row)
			}
		}
		if len(have[name]) != len(rows) {
			return fmt.Sprintf("%s has %d rows and should have %d",
				name, len(have[name]), len(rows))
		}
	}
	if len(want) != len(have) {
		return fmt.Sprintf("%d tables, want %d", len(have), len(want))
	}
	return ""
}

func query(t testing.TB, db *sql.DB, statement string, args ...any) (all [][]any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row, dest := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
