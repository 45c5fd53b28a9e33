package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// schema is the schema of the tables that statements name, quoted and with a dot behind it. Empty:
// a statement stays as it is.
type schema string

func (d Dialect) schema() schema {
	if d.Schema == "" {
		return ""
	}
	return quoted(d.Schema)
}

func quoted(name string) schema {
	return schema(`"` + strings.ReplaceAll(name, `"`, `""`) + `".`)
}

// create returns the statement that makes the schema, if there is one to make.
func (in schema) create() []string {
	if in == "" {
		return nil
	}
	return []string{"CREATE SCHEMA IF NOT EXISTS " + strings.TrimSuffix(string(in), ".")}
}

// makeVersions makes the table of versions, and the schema where that is missing. The schema of a
// tenant is made only with the tenant: one that is missing has been dropped, or was lost.
func (d Dialect) makeVersions(ctx context.Context, tx *sql.Tx) error {
	statements := []string{versionTable}
	if d.Tenant == nil && d.Schema != "" {
		var there int // CREATE SCHEMA needs a right on the database even then
		err := tx.QueryRowContext(ctx, selectSchema, d.Schema).Scan(&there)
		if err != nil {
			return err
		}
		if there == 0 {
			statements = append(d.schema().create(), versionTable)
		}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, d.Qualify(statement)); err != nil {
			return err
		}
	}
	return nil
}

const selectSchema = `SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = $1`

// Locate returns d with the Schema in which the connections of db make tables, so that no later
// statement depends on their search path. A d with a Schema stays as it is. Locate makes nothing.
// It is for PostgreSQL: in SQLite a Schema must stay empty.
//
// It returns an error when the search path finds the tables in a later schema only: they belong to
// another deployment, or the search path is wrong.
func (d Dialect) Locate(ctx context.Context, db *sql.DB) (Dialect, error) {
	var err error
	d.Schema, _, err = d.locate(ctx, db, "svc_migrations")
	return d, err
}

// locate returns the schema in which connections make tables. has is true when the table is there,
// or when no search is needed, because statements name a Schema.
func (d Dialect) locate(
	ctx context.Context, db *sql.DB, table string,
) (current string, has bool, err error) {
	if d.Schema != "" || d.Find == "" {
		return d.Schema, true, nil
	}
	refuseNil(ctx)
	var found string
	if err := db.QueryRowContext(ctx, d.Find, table).Scan(&current, &found); err != nil {
		return "", false, err
	}
	switch {
	case current == "":
		return "", false, errors.New("no schema of the search path exists, or the role may not" +
			" use it: create its first schema, grant USAGE, or set search_path to another one")
	case found != "" && found != current:
		return "", false, fmt.Errorf("the table %s is in the schema %q and not in %q, where new"+
			" tables are made: to use those of %[2]q, put it first in the search path, and grant"+
			" USAGE; to make tables in %[3]q, leave %[2]q out of the search path until they are"+
			" there",
			table, found, current)
	}
	return current, found != "", nil
}

const tablePrefix = "svc_"

// qualify puts the schema in front of each table of a statement. The names of tables begin with
// svc_ and stand outside of quotes; an index has no schema where it is made.
func (in schema) qualify(statement string) string {
	if in == "" {
		return statement
	}
	var b strings.Builder
	b.Grow(len(statement) + 8*len(in))
	done, quote := 0, byte(0) // the quote in which i is
	for i := 0; i < len(statement); i++ {
		switch c := statement[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c != 's' || i > 0 && inName(statement[i-1]):
		case !strings.HasPrefix(statement[i:], tablePrefix):
		case strings.HasSuffix(statement[:i], "INDEX ") &&
			!strings.HasSuffix(statement[:i], "DROP INDEX "):
		default:
			b.WriteString(statement[done:i])
			b.WriteString(string(in))
			done = i
		}
	}
	b.WriteString(statement[done:])
	return b.String()
}

// Qualify returns a statement that names the Schema with each table of the Store. Names of the
// tables begin with svc_; text in quotes stays as it is.
func (d Dialect) Qualify(statement string) string { return d.schema().qualify(statement) }

// inName reports whether c before a word makes it a part of a longer name.
func inName(c byte) bool {
	return c == '_' || c == '.' ||
		'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
