package sqlstore

import (
	"archive/zip"
	"bytes"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/extsvc/svc"
)

// embedded holds the migrations, from 0001.sql on. A released migration never changes: each change
// is a new migration. Migrations drop no data. Statements end with a semicolon
// at the end of a line.
//
//go:embed migrations
var embedded embed.FS

// migrationFiles is what a test replaces to add a migration.
var migrationFiles fs.FS = embedded

const versionTable = `CREATE TABLE IF NOT EXISTS ` +
	`svc_migrations (version BIGINT NOT NULL PRIMARY KEY)`

// Migrate creates the tables in one transaction, or upgrades them with one for each step. Any number
// of processes may call it concurrently. When a newer version of this package has upgraded the
// database, or only a later schema of the search path has the tables, Migrate returns an error and
// makes nothing.
func (s *Store) Migrate(ctx context.Context) error {
	if _, _, err := s.dialect.locate(ctx, s.write.db, "svc_migrations"); err != nil {
		return s.fault(ctx, "migrate the database", err)
	}
	patient := s.write.unlimited() // without a limit of time for a migration
	// An error may say that tables are missing. Any other one comes again below.
	version, unread := s.version(ctx)
	current := unread == nil && version == len(s.dialect.migrations())
	for !current {
		err := patient.transact(ctx, readCommitted, func(
			ctx context.Context, tx session,
		) (err error) {
			current, err = s.dialect.migrate(ctx, tx.tx)
			return err
		})
		if err == nil || errors.Is(err, errUnchanged) {
			continue
		}
		if unread != nil && s.dialect.classify(err) == nil { // a right to read may be missing
			err = fmt.Errorf("%w, after its version could not be read: %w", err, unread)
		}
		return s.fault(ctx, "migrate the database", err)
	}
	return nil
}

// Upgrade is Migrate for tables that exist. Those that are missing were lost: it makes none.
// ErrUnavailable.
func (s *Store) Upgrade(ctx context.Context) error {
	version, err := s.version(ctx)
	switch {
	case err == nil && version == len(s.dialect.migrations()):
		return nil
	case err == nil && version == 0:
		err = errors.New("its tables are missing")
	}
	if err != nil {
		return fmt.Errorf("migrate the database: %w: %w", svc.ErrUnavailable, err)
	}
	return s.Migrate(ctx)
}

// CheckVersion returns an error unless the tables are those of this program, as after Migrate. It
// changes nothing, and needs only the right to read.
func (s *Store) CheckVersion(ctx context.Context) error {
	version, err := s.version(ctx)
	known := len(s.dialect.migrations())
	switch {
	case err != nil:
	case version > known:
		err = newer(version, known)
	case version < known:
		err = fmt.Errorf("its schema has version %d, and this program needs %d: start the server"+
			" with this program once, which upgrades it, or use the older program", version, known)
	}
	return s.fault(ctx, "read the version of the database", err)
}

const selectVersion = `SELECT COALESCE(MAX(version), 0) FROM svc_migrations`

// version returns the number of the last migration. It needs only the right to read.
func (s *Store) version(ctx context.Context) (version int, err error) {
	refuseNil(ctx)
	err = s.write.db.QueryRowContext(ctx, s.dialect.Qualify(selectVersion)).Scan(&version)
	return version, err
}

// unlimited lifts the limits that the role or the address of a PostgreSQL server sets for short
// statements, until the transaction ends. A migration waits for others, and may take long.
const unlimited = `SELECT set_config(name, '0', true) FROM pg_settings
	WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout')`

// migrate runs the next migration, or all in a database without tables. When there is none, current
// is true and the error is errUnchanged.
func (d Dialect) migrate(ctx context.Context, tx *sql.Tx) (current bool, err error) {
	if d.Lock != "" {
		_, err := tx.ExecContext(ctx, unlimited)
		if err == nil {
			_, err = tx.ExecContext(ctx, d.Lock, d.Schema)
		}
		if err != nil {
			return false, err
		}
	}
	if err := d.makeVersions(ctx, tx); err != nil {
		return false, err
	}
	in := d.schema()
	var version int
	if err := tx.QueryRowContext(ctx, in.qualify(selectVersion)).Scan(&version); err != nil {
		return false, err
	}
	migrations := d.migrations()
	switch {
	case version > len(migrations):
		return false, newer(version, len(migrations))
	case version == len(migrations):
		return true, errUnchanged
	}
	next := migrations[version]
	if version == 0 {
		next = d.lacking(0)
	}
	for _, statement := range next {
		if _, err := tx.ExecContext(ctx, in.qualify(statement)); err != nil {
			return false, fmt.Errorf("after version %d: %w", version, err)
		}
	}
	if version+1 == foldedUsers {
		err = foldUsers(ctx, tx, in)
	}
	return false, err
}

// foldedUsers is the migration after which users have folded texts. Its statements fold only ASCII.
const foldedUsers = 9

// foldUsers folds the texts of the users that have letters beyond ASCII.
func foldUsers(ctx context.Context, tx *sql.Tx, in schema) error {
	rows, err := tx.QueryContext(ctx, in.qualify(`SELECT id, display_name, email FROM svc_users`))
	if err != nil {
		return err
	}
	defer rows.Close()
	var users []svc.User
	for rows.Next() {
		var u svc.User
		if err := rows.Scan(&u.ID, &u.DisplayName, &u.Email); err != nil {
			return err
		}
		email := ""
		if u.Email != nil {
			email = *u.Email
		}
		beyondASCII := func(r rune) bool { return r > unicode.MaxASCII }
		if strings.ContainsFunc(u.ID+u.DisplayName+email, beyondASCII) {
			users = append(users, u)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, u := range users {
		id, name, email := foldUser(u)
		_, err := tx.ExecContext(ctx, in.qualify(`UPDATE svc_users
			SET folded_id = $1, folded_name = $2, folded_email = $3 WHERE id = $4`),
			id, name, email, u.ID)
		if err != nil {
			return err
		}
	}
	return nil
}

func newer(version, known int) error {
	return fmt.Errorf("its schema has version %d, but this program knows only %d: "+
		"run the newer program that upgraded it", version, known)
}

// widen keeps or drops the columns in {wide:…}. Only indexes with rows of any length have them.
func widen(script string, keep bool) string {
	var b strings.Builder
	for {
		before, behind, found := strings.Cut(script, "{wide:")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		columns, rest, _ := strings.Cut(behind, "}")
		if keep {
			b.WriteString(columns)
		}
		script = rest
	}
}

// migrationTexts returns the migrations, in which {text}, {bytes}, {serial}, {lanes} and {wide:…}
// stand for what differs between databases.
func migrationTexts() []string {
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		panic(err) // it is embedded
	}
	texts := make([]string, len(entries))
	for i, entry := range entries {
		text, err := fs.ReadFile(migrationFiles, path.Join("migrations", entry.Name()))
		if err != nil {
			panic(err)
		}
		texts[i] = string(text)
	}
	return texts
}

// statements returns the statements of a migration.
func statements(text string) []string {
	return strings.Split(strings.TrimSuffix(text, ";\n"), ";\n")
}

// migrations returns the statements of each migration. The last statement records the migration.
func (d Dialect) migrations() [][]string {
	types := strings.NewReplacer("{text}", d.Text, "{bytes}", d.Bytes, "{serial}", d.Serial,
		"{lanes}", strconv.Itoa(d.lanes()))
	var migrations [][]string
	for i, text := range migrationTexts() {
		script := widen(types.Replace(text), !d.NarrowIndexes)
		record := fmt.Sprintf("INSERT INTO svc_migrations (version) VALUES (%d)", i+1)
		migrations = append(migrations, append(statements(script), record))
	}
	return migrations
}

// SQL returns a script with all migrations, which makes the tables in an empty database. It is for
// hosts that run migrations with their own tool; [Store.Migrate] then finds nothing to do.
// [Pending] returns only the migrations that a database lacks.
func SQL(dialect Dialect) string { return dialect.script(0) }

// Migrations returns the migrations as files, one for each: 0001_svc.up.sql and so on, in the root.
// They are for hosts whose tool runs files: goose, golang-migrate and atlas read them. A released
// file never changes. Each also records itself in svc_migrations, so [Store.Migrate] finds nothing
// to do afterwards. Run each file once, in its order, in a transaction.
//
// Let the tool keep its versions of these files in their own table, apart from those of the host's
// files: see docs/howto/migrations.md. The file system is safe for concurrent use.
func Migrations(dialect Dialect) fs.FS {
	var archive bytes.Buffer
	files := zip.NewWriter(&archive)
	for i, list := range dialect.migrations() {
		file, err := files.Create(fmt.Sprintf("%04d_svc.up.sql", i+1))
		if err == nil {
			_, err = io.WriteString(file, gooseUp+dialect.print(i == 0, list))
		}
		if err != nil {
			panic(err) // it is in memory
		}
	}
	if err := files.Close(); err != nil {
		panic(err)
	}
	made, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	if err != nil {
		panic(err)
	}
	return made
}

// gooseUp begins each file for goose. To other tools it is a comment.
const gooseUp = "-- +goose Up\n"

// Pending returns a script with the migrations that the database at db lacks. A database without
// tables lacks all of them; an up-to-date one lacks none, and the script is "". Pending changes
// nothing. When a newer version of this package has upgraded the database, or only a later schema
// of the search path has the tables, Pending returns an error.
func Pending(ctx context.Context, db *sql.DB, dialect Dialect) (script string, err error) {
	s := New(db, db, dialect)
	version, err := s.versionOrNone(ctx)
	if err != nil {
		return "", s.fault(ctx, "read the version of the database", err)
	}
	if known := len(dialect.migrations()); version > known {
		return "", newer(version, known)
	}
	return dialect.script(version), nil
}

// versionOrNone is version, and 0 when there are no tables. Without Find, it makes the table of
// versions in a transaction and rolls it back.
func (s *Store) versionOrNone(ctx context.Context) (version int, err error) {
	d := s.dialect
	if _, has, err := d.locate(ctx, s.write.db, "svc_migrations"); err != nil || !has {
		return 0, err
	}
	if version, err := s.version(ctx); err == nil {
		return version, nil
	}
	tx, err := s.write.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // its error would only hide the cause
	if err := d.makeVersions(ctx, tx); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, d.Qualify(selectVersion)).Scan(&version)
	return version, err
}

// script returns the migrations after a version, "" when there are none.
func (d Dialect) script(version int) string { return d.print(version == 0, d.lacking(version)) }

// lacking returns the statements of all migrations after a version.
func (d Dialect) lacking(version int) []string {
	list := slices.Concat(d.migrations()[version:]...)
	if version == 0 && d.Tenant != nil {
		return fold(list)
	}
	return list
}

// print returns statements of migrations as a script. The first migration makes the table of
// versions as well.
func (d Dialect) print(first bool, list []string) string {
	var b strings.Builder
	in := d.schema()
	if first {
		for _, statement := range append(in.create(), versionTable) {
			b.WriteString(in.qualify(statement) + ";\n")
		}
	}
	for _, statement := range list {
		b.WriteString("\n" + in.qualify(strings.TrimSpace(statement)) + ";\n")
	}
	return b.String()
}

// tableEnd is where another column of CREATE TABLE belongs: in front of the first constraint, or at
// the end.
var tableEnd = regexp.MustCompile(`,\n  (PRIMARY|FOREIGN) KEY \(|\n\)$`)

// fold returns the statements of migrations with each added column where its table is created.
// PostgreSQL reads its whole list of indexes to add a column, so with many schemas that is slow.
func fold(statements []string) (folded []string) {
	created := map[string]int{} // the name of a table: the index in folded
	for _, statement := range statements {
		before, column, added := strings.Cut(statement, " ADD COLUMN ")
		table := strings.TrimPrefix(strings.TrimSpace(before), "ALTER TABLE ")
		table, _, _ = strings.Cut(table, " ")
		if at, found := created[table]; added && found {
			text := strings.TrimSpace(folded[at])
			end := tableEnd.FindStringIndex(text)[0]
			folded[at] = text[:end] + ",\n  " + column + text[end:]
			continue
		}
		if words := strings.Fields(statement); words[0] == "CREATE" && words[1] == "TABLE" {
			created[words[2]] = len(folded)
		}
		folded = append(folded, statement)
	}
	return folded
}
