package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"path"
	"strings"
)

// migrationFiles holds the migrations, 0001.sql and on. A released one is never changed: a change is a new one. They drop
// nothing. Statements end with a semicolon at the end of a line.
//
//go:embed migrations
var migrationFiles embed.FS

const versionTable = `CREATE TABLE IF NOT EXISTS svc_migrations (version BIGINT NOT NULL PRIMARY KEY)`

// Migrate makes or upgrades the tables, each step in one transaction. Any number of processes may call it at once. A
// database that a newer version of this package has upgraded is an error.
func (s *Store) Migrate(ctx context.Context) error {
	patient := newPool(s.write.db, nil) // a migration may take its time
	for current := s.isCurrent(ctx); !current; {
		err := patient.transact(ctx, readCommitted, func(ctx context.Context, tx session) (err error) {
			current, err = s.dialect.migrate(ctx, tx.tx)
			return err
		})
		if err != nil && !errors.Is(err, errUnchanged) {
			return s.fault(ctx, "migrate the database", err)
		}
	}
	return nil
}

const selectVersion = `SELECT COALESCE(MAX(version), 0) FROM svc_migrations`

// isCurrent reports whether there is nothing to do, which takes no right but to read. Whatever fails here is found out
// further on.
func (s *Store) isCurrent(ctx context.Context) bool {
	var version int
	err := s.write.db.QueryRowContext(ctx, selectVersion).Scan(&version)
	return err == nil && version == len(s.dialect.migrations())
}

// migrate runs the next migration, or reports that there is none.
func (d Dialect) migrate(ctx context.Context, tx *sql.Tx) (current bool, err error) {
	if d.Lock != "" {
		if _, err := tx.ExecContext(ctx, d.Lock); err != nil {
			return false, err
		}
	}
	if _, err := tx.ExecContext(ctx, versionTable); err != nil {
		return false, err
	}
	var version int
	if err := tx.QueryRowContext(ctx, selectVersion).Scan(&version); err != nil {
		return false, err
	}
	migrations := d.migrations()
	switch {
	case version > len(migrations):
		return false, fmt.Errorf("its schema has version %d, but this program knows only %d: it was upgraded by a newer one", version, len(migrations))
	case version == len(migrations):
		return true, errUnchanged
	}
	for _, statement := range migrations[version] {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return false, fmt.Errorf("version %d: %w", version+1, err)
		}
	}
	return false, nil
}

// widened keeps or drops the columns of indexes, in {wide:…}, that only those have whose rows may have any length.
func widened(script string, keep bool) string {
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

// migrations returns the statements of each migration, the one that records it last.
func (d Dialect) migrations() [][]string {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		panic(err) // it is embedded
	}
	types := strings.NewReplacer("{text}", d.Text, "{bytes}", d.Bytes)
	migrations := make([][]string, len(entries))
	for i, entry := range entries {
		text, err := migrationFiles.ReadFile(path.Join("migrations", entry.Name()))
		if err != nil {
			panic(err)
		}
		script := widened(types.Replace(string(text)), !d.NarrowIndexes)
		statements := strings.Split(strings.TrimSuffix(script, ";\n"), ";\n")
		record := fmt.Sprintf("INSERT INTO svc_migrations (version) VALUES (%d)", i+1)
		migrations[i] = append(statements, record)
	}
	return migrations
}

// SQL returns the migrations as a script, for hosts that run them with a tool of their own; [Store.Migrate] then finds
// nothing to do.
func SQL(dialect Dialect) string {
	var b strings.Builder
	b.WriteString(versionTable + ";\n")
	for _, migration := range dialect.migrations() {
		for _, statement := range migration {
			b.WriteString("\n" + strings.TrimSpace(statement) + ";\n")
		}
	}
	return b.String()
}
