package dbcopy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

// refused checks that a copy is refused with these words, and that the target stays as it is.
func refused(t *testing.T, from, to store, words string) {
	t.Helper()
	tables := schema(t)
	before := Rows(t, to.DB(), tables)
	err := sqlstore.Copy(t.Context(), from, to)
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %q", err, words)
	}
	if difference := Difference(before, Rows(t, to.DB(), tables)); difference != "" {
		t.Error(difference)
	}
}

// A target with a row in any table is refused, and one that has lost its rows again.
func TestTargetWithRows(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	for kind, newTarget := range kinds {
		t.Run(kind, func(t *testing.T) {
			direction(t, "SQLite", kind)
			source, target := newFile(t), newTarget(t)
			NewFiller(6).Fill(t, source.DB(), tables, 2, 40)
			NewFiller(7).Fill(t, target.DB(), tables, 2, 40)
			refused(t, source, target, "the target is not empty")
			for i, table := range slices.Backward(tables) { // those that refer to others go first
				if slices.Contains(kept, table.Name) {
					continue
				}
				refused(t, source, target, "has rows")
				clear := `DELETE FROM ` + table.Name
				if table.Name == "svc_kept_values" {
					clear += ` WHERE name <> 'channel'`
				}
				if _, err := target.DB().Exec(clear); err != nil {
					t.Fatal(i, err)
				}
			}
			refused(t, source, target, "svc_generation has rows")
			must(target.DB().Exec(`UPDATE svc_generation SET value = 0`))
			copies(t, source, target)
			wantSame(t, source, target, tables)
		})
	}
}

// Each single row is noticed.
func TestTargetWithOneRow(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	source, target := newFile(t), newFile(t)
	for _, table := range tables {
		if slices.Contains(kept, table.Name) || len(table.parents) > 0 {
			continue
		}
		NewFiller(8).Fill(t, target.DB(), []Table{table}, 1, 40)
		must(target.DB().Exec(`UPDATE svc_generation SET value = 0`))
		refused(t, source, target, table.Name+" has rows")
		must(target.DB().Exec(`DELETE FROM ` + table.Name))
	}
}

// A database is not copied to itself, whatever its address.
func TestSameDatabase(t *testing.T) {
	t.Parallel()
	const words = "the same database"
	path := filepath.Join(t.TempDir(), "svc.db")
	link := filepath.Join(t.TempDir(), "link.db")
	must(0, os.Symlink(path, link))
	file := openFile(t, path)
	for _, with := range []bool{false, true} { // rows
		if with {
			NewFiller(9).Fill(t, file.DB(), schema(t), 2, 40)
		}
		refused(t, file, file, words)
		refused(t, file, openFile(t, path), words)
		refused(t, file, openFile(t, link), words)
		refused(t, openFile(t, link), file, words)
	}

	url := pgtest.Schema(t)
	server := openURL(t, url)
	refused(t, server, server, words)
	for _, other := range []string{
		strings.Replace(url, "127.0.0.1", "localhost", 1),
		strings.Replace(url, "postgres://", "postgresql://", 1),
		strings.Replace(url, "search_path=", "options=-csearch_path%3D", 1),
		pgtest.With(t, url, "application_name", "other"),
	} {
		refused(t, server, openURL(t, other), words)
	}
	copies(t, server, openURL(t, pgtest.Schema(t))) // another schema of the same database
}

// Only databases of the version that the program knows are copied.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	for kind, newStore := range kinds {
		t.Run(kind, func(t *testing.T) {
			old, newer := newStore(t), newStore(t)
			must(newer.DB().Exec(`INSERT INTO svc_migrations (version) VALUES (1000)`))
			refused(t, newer, old, "the tables of the source have version 1000")
			refused(t, old, newer, "the tables of the target have version 1000")
		})
	}
}
