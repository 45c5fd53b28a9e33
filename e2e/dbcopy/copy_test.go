package dbcopy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/postgres/pgtest/pgschema"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// TestMain runs more tests at once than there are processors, because most wait for a database.
func TestMain(m *testing.M) {
	longtest.AtOnce(3)
	m.Run()
}

// store is what both packages open.
type store interface {
	sqlstore.Opened
	DB() *sql.DB
	Close() error
}

func openFile(t *testing.T, path string) store {
	t.Helper()
	return opened(t, must(sqlite.Open(t.Context(), path, sqlite.Options{})))
}

func newFile(t *testing.T) store {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "svc.db"))
}

func openURL(t *testing.T, url string) store {
	t.Helper()
	return opened(t, must(postgres.Open(t.Context(), url, postgres.Options{MaxOpen: pgtest.Connections, Timeout: -1})))
}

func newSchema(t *testing.T) store {
	t.Helper()
	return openURL(t, pgschema.Migrated(t))
}

func opened(t *testing.T, s store) store {
	t.Cleanup(func() { must(0, s.Close()) })
	return s
}

// must is the value of a call that does not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// kinds are of each end of a copy. In the short form, only TestCopyOfOddValues copies to PostgreSQL and back.
var kinds = map[string]func(t *testing.T) store{"SQLite": newFile, "PostgreSQL": func(t *testing.T) store {
	longtest.Test(t, "this with PostgreSQL")
	return newSchema(t)
}}

var known struct { // of every database
	once   sync.Once
	tables []Table
}

// schema returns the tables that every database has.
func schema(t *testing.T) []Table {
	t.Helper()
	known.once.Do(func() { known.tables = Tables(t, newFile(t).DB()) })
	return known.tables
}

func copies(t *testing.T, from, to store) {
	must(0, sqlstore.Copy(t.Context(), from, to))
	late := query(t, to.DB(), `SELECT seq FROM svc_audit_queue WHERE seq > 0`)
	expect.Equal(t, "copied rows that may come behind new ones", len(late), 0)
}

func wantSame(t *testing.T, from, to store, tables []Table) {
	t.Helper()
	wantRows(t, Rows(t, from.DB(), tables), to, tables)
}

func wantRows(t *testing.T, want map[string][]string, in store, tables []Table) {
	t.Helper()
	expect.Equal(t, "the difference", Difference(want, Rows(t, in.DB(), tables)), "")
}

// Every column of every table arrives as it was, from each kind of database in each, and back.
func TestCopyIsTheSame(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	for from, newFrom := range kinds {
		for to, newTo := range kinds {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				source, there, back := newFrom(t), newTo(t), newFrom(t)
				NewFiller(1).Fill(t, source.DB(), tables, 300, 40) // more rows than a statement reads
				for name, rows := range Rows(t, source.DB(), tables) {
					expect.Holds(t, len(rows) >= 100 || len(rows) > 0 && slices.Contains(kept, name), name, " has ", len(rows), " rows")
				}
				copies(t, source, there)
				wantSame(t, source, there, tables)
				copies(t, there, back)
				wantSame(t, source, back, tables)
			})
		}
	}
}

// The same with other values at each run. The name of a failing test has its seed. Once the values are
// larger than what is written at once.
func TestCopyOfOddValues(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	for rows, large := range map[int]int{longtest.Times(20, 40): 40, 2: 1<<20 + 7} {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if large > 40 {
				longtest.Test(t, "values of a megabyte")
			}
			source, there, back := newFile(t), newSchema(t), newFile(t)
			NewFiller(seed).Fill(t, source.DB(), tables, rows, large)
			copies(t, source, there)
			copies(t, there, back)
			wantSame(t, source, there, tables)
			wantSame(t, source, back, tables)
		})
	}
}

// The comparison sees a lost row, another value, and another type.
func TestDifferencesAreSeen(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	for _, change := range []string{
		`DELETE FROM svc_outbox WHERE id = (SELECT MIN(id) FROM svc_outbox)`,
		`UPDATE svc_api_keys SET last_used_at = 7`,
		`UPDATE svc_sources SET description = CASE WHEN description IS NULL THEN '' END`,
		`UPDATE svc_policies SET document = CAST(document AS BLOB)`,
		`UPDATE svc_generation SET value = value + 1`,
	} {
		source, target := newFile(t), newFile(t)
		NewFiller(2).Fill(t, source.DB(), tables, 10, 40)
		copies(t, source, target)
		wantSame(t, source, target, tables)
		must(target.DB().Exec(change))
		expect.Holds(t, Difference(Rows(t, source.DB(), tables), Rows(t, target.DB(), tables)) != "", "seen: ", change)
	}
}

// Both kinds of databases have the same columns.
func TestColumnsOfPostgres(t *testing.T) {
	t.Parallel()
	var columns []string
	for _, row := range query(t, newSchema(t).DB(), `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name <> 'svc_changefeed'`) {
		columns = append(columns, row[0].(string))
	}
	slices.Sort(columns)
	expect.Equal(t, "columns of PostgreSQL", columns, Columns(schema(t)))
}

// The source goes on changing during the copy, which has one of its states.
func TestCopyIsOneState(t *testing.T) {
	t.Parallel()
	for from, newFrom := range kinds {
		for to, newTo := range kinds {
			t.Run(from+" to "+to, func(t *testing.T) {
				source, target := newFrom(t), newTo(t)
				NewFiller(3).Fill(t, source.DB(), schema(t), 100, 40)
				before := Rows(t, source.DB(), schema(t))
				written := 0
				copier := sqlstore.Copier{Progress: func(done, total int64) {
					must(source.DB().Exec(`INSERT INTO svc_policies VALUES ($1, '', '')`, fmt.Sprint("later ", done)))
					written++
				}}
				must(0, copier.Copy(t.Context(), source, target))
				wantRows(t, before, target, schema(t))
				expect.Holds(t, written >= 2, "rows are written meanwhile: ", written)
			})
		}
	}
}

// Progress goes from 0 to all rows.
func TestProgress(t *testing.T) {
	t.Parallel()
	source, target := newFile(t), newFile(t)
	NewFiller(4).Fill(t, source.DB(), schema(t), 300, 40)
	batches := longtest.Times(4, 20)
	must(source.DB().Exec(`UPDATE svc_source_files SET data = zeroblob(1048576) WHERE rowid <= $1`, batches))
	must(source.DB().Exec(`UPDATE svc_policies SET document = printf('%1048576s', '') WHERE rowid <= $1`, batches))
	var reports []int64
	var all int64
	copier := sqlstore.Copier{Progress: func(done, total int64) { reports, all = append(reports, done), total }}
	must(0, copier.Copy(t.Context(), source, target))
	rows := -int64(len(query(t, source.DB(), `SELECT version FROM svc_migrations`))) // which is not copied
	for _, lines := range Rows(t, source.DB(), schema(t)) {
		rows += int64(len(lines))
	}
	expect.Equal(t, "the rows, the first and the last report", []int64{all, reports[0], reports[len(reports)-1]}, []int64{rows, 0, rows})
	expect.Holds(t, slices.IsSorted(reports) && len(reports) >= 4*batches, "reports: ", reports)
}

// A copy that is interrupted writes nothing, and can be repeated.
func TestInterruptedCopy(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	source := newFile(t)
	NewFiller(5).Fill(t, source.DB(), tables, 300, 40)
	for to, newTo := range kinds {
		t.Run(to, func(t *testing.T) {
			target := newTo(t)
			before := Rows(t, target.DB(), tables)
			ctx, cancel := context.WithCancel(t.Context())
			copier := sqlstore.Copier{Progress: func(done, total int64) {
				if done == total { // the last moment
					cancel()
				}
			}}
			err := copier.Copy(ctx, source, target)
			expect.Holds(t, errors.Is(err, context.Canceled), err)
			wantRows(t, before, target, tables)
			copies(t, source, target)
			wantSame(t, source, target, tables)
		})
	}
}

// refused checks that a copy is refused with these words, and that the target stays as it is.
func refused(t *testing.T, from, to store, words string) {
	t.Helper()
	tables := schema(t)
	before := Rows(t, to.DB(), tables)
	err := sqlstore.Copy(t.Context(), from, to)
	expect.Holds(t, err != nil && strings.Contains(err.Error(), words), "got ", err, ", want ", words)
	wantRows(t, before, to, tables)
}

// A target with a row in any table is refused, and one that has lost its rows again.
func TestTargetWithRows(t *testing.T) {
	t.Parallel()
	tables := schema(t)
	for kind, newTarget := range kinds {
		t.Run(kind, func(t *testing.T) {
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

	longtest.Test(t, "the addresses of a PostgreSQL database")
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
	copies(t, server, openURL(t, pgschema.Migrated(t))) // another schema of the same database
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
