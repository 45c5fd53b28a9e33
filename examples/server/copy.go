package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

var copyCommand = subcommand{
	name:  "copy",
	alone: true,
	about: "copy all rows of one database into another one, which must be new or empty. It works" +
		" also while the server uses the first one: it takes one state of it. Start a server on" +
		" the second one when the copy is done",
	setup: func(flags *flag.FlagSet, c *call) job {
		from := flags.String("from", "", "the database to read, a `FILE` of SQLite or the URL of a"+
			" PostgreSQL database; it stays as it is")
		to := flags.String("to", "", "the database to write, a `FILE` or a URL. It works with the"+
			" keys file of the first one")
		return func(ctx context.Context) error {
			if err := errors.Join(checkDB("-from", *from), checkDB("-to", *to)); err != nil {
				return err
			}
			shown := newProgress(c.stdout, "copy")
			defer shown.end()
			shown.lines = true
			return copyDatabase(ctx, *from, *to, shown)
		}
	},
}

// checkDB checks a flag that names a database.
func checkDB(flag, db string) error {
	switch {
	case db == "":
		return usageError(flag + " must name a file or a database")
	case hasControls(db):
		return usageError(flag + " " + noControls)
	case !isPlace(db):
		return usageError(flag + " " + notAPlace)
	}
	return nil
}

// copyDatabase copies a database into another one. When it fails, the target is as before. A SQLite file
// that does not exist appears whole, and never replaces one that another program has made in the meantime.
func copyDatabase(ctx context.Context, from, to string, shown *progress) error {
	if err := (&config{DB: from}).checkSource(ctx); err != nil {
		return err
	}
	if err := checkTarget(ctx, from, to); err != nil {
		return err
	}
	if isPostgres(to) || checkNone(to) != nil {
		return copyRows(ctx, from, to, shown)
	}
	if err := checkNew(to); err != nil {
		return err
	}
	drafts, remove, err := makeDrafts(to)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer remove()
	draft := filepath.Join(drafts, databaseName)
	if err := snapshot(ctx, from, draft, shown); err != nil {
		return err
	}
	return putNew(draft, to)
}

// movable is a database that can be copied.
type movable interface {
	sqlstore.Opened
	Close() error
}

// openMovable opens a database without limits of time. In PostgreSQL it changes nothing: a server
// makes the channel of notifications when it starts.
func openMovable(ctx context.Context, db string, toRead bool) (movable, error) {
	if isPostgres(db) {
		return postgres.Open(ctx, db, postgres.Options{NoNotify: true, Timeout: -1})
	}
	return sqlite.Open(ctx, db, sqlite.Options{ReadOnly: toRead})
}

func copyRows(ctx context.Context, from, to string, shown *progress) (err error) {
	source, err := openMovable(ctx, from, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := openMovable(ctx, to, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	return sqlstore.Copier{Progress: shown.report}.Copy(ctx, source, target)
}

// checkSource refuses a database that does not exist, or whose tables are not those that this
// program knows: opening it would create or upgrade them.
func (c *config) checkSource(ctx context.Context) error {
	if err := exists(c.DB); err != nil {
		return err
	}
	if err := c.checkTables(ctx); err != nil {
		return err
	}
	tenants, err := readNumber(ctx, c.DB, `SELECT COUNT(*) FROM svc_tenants`)
	if err == nil && tenants > 0 { // else there is no such table
		shown, _ := withoutPassword(c.DB)
		return fmt.Errorf("database %s lists tenants, whose rows are not in its tables:"+
			" see docs/howto/move-tenant.md", shown)
	}
	return nil
}

// checkTables refuses a database whose tables are not those that this program knows.
func (c *config) checkTables(ctx context.Context) error {
	shown, _ := withoutPassword(c.DB)
	switch lacks, all, err := c.lacking(ctx); {
	case err != nil:
		return err
	case all:
		return fmt.Errorf("database %s has no tables of svc: name another one", shown)
	case lacks:
		return fmt.Errorf("database %s has tables of an older version:"+
			" start the server on it once, which upgrades them, or use the older program", shown)
	}
	return nil
}

// checkTarget refuses the source, and a database with rows whose tables a copy would upgrade. A command that
// was killed while it made the tables leaves some of them, and a generation of 0.
func checkTarget(ctx context.Context, from, to string) error {
	if sameFile(from, to) {
		return errors.New("the source and the target are the same file: name another target")
	}
	lacks, all, err := (&config{DB: to}).lacking(ctx)
	if err != nil || !lacks || all {
		return err
	}
	generation, err := readNumber(ctx, to, `SELECT CAST(SUM(value) AS BIGINT) FROM svc_generation`)
	if err == nil && generation > 0 {
		shown, _ := withoutPassword(to)
		err = fmt.Errorf("database %s has tables of an older version: name a new one", shown)
	}
	return err
}

// readNumber reads a number from a database with tables of any version.
func readNumber(ctx context.Context, db, query string) (n int64, err error) {
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(db)
	driver, address := "sqlite", "file:"+escaped+"?mode=ro"
	if isPostgres(db) {
		driver, address = "pgx", db
	}
	pool, err := sql.Open(driver, address) // store/sqlite and store/postgres bring the drivers
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	return number(ctx, pool, query)
}

// lacking reports whether a database lacks migrations, or all of them.
func (c *config) lacking(ctx context.Context) (lacks, all bool, err error) {
	if info, err := os.Stat(c.DB); !isPostgres(c.DB) && err == nil && !info.Mode().IsRegular() {
		return false, false, fmt.Errorf("database %s is not a regular file: name another one", c.DB)
	}
	script, err := c.migrations(ctx, false)
	if err != nil {
		return false, false, err
	}
	whole, err := c.migrations(ctx, true)
	return script != "", script == whole, err
}

func sameFile(a, b string) bool {
	if isPostgres(a) || isPostgres(b) {
		return false
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// filesOf returns the files of a SQLite database, itself first.
func filesOf(db string) []string { return []string{db, db + "-wal", db + "-shm", db + "-journal"} }
