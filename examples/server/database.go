package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// database is the store of the host. The host closes it.
type database interface {
	svc.Store
	KeyPrefixes(ctx context.Context) (map[string]int64, error)
	Close() error
}

// isPostgres reports whether db is the address of a PostgreSQL server. Otherwise db is the path of
// a SQLite file.
func isPostgres(db string) bool {
	return strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://")
}

// another matches addresses of another kind, which would otherwise become the names of files.
var another = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:|^\s*[a-z]+\s*=|\?`)

// isPlace reports whether db is the address of a PostgreSQL server, or plainly the path of a file:
// any path is one that begins with a dot or a slash.
func isPlace(db string) bool {
	return isPostgres(db) || strings.HasPrefix(db, ".") || strings.HasPrefix(db, "/") ||
		!another.MatchString(db) && db != standard
}

// notAPlace says what a database must be.
const notAPlace = "must be the path of a SQLite file, or an address that starts with postgres://;" +
	" put ./ in front of a file whose name looks like an address"

func (c *config) openDatabase(ctx context.Context) (database, error) {
	if isPostgres(c.DB) {
		return postgres.Open(ctx, c.DB, c.Postgres.options())
	}
	// A restore that was killed at its end has left the draft of this file, a second name of it.
	_ = removeAbandoned(filepath.Dir(c.DB))
	return sqlite.Open(ctx, c.DB, sqlite.Options{Fast: c.SQLite.Fast})
}

// readDatabase opens a database for a command that writes nothing, such as a copy that only the
// owner may change. It refuses tables of another version.
func (c *config) readDatabase(ctx context.Context) (database, error) {
	if err := c.checkSource(ctx); err != nil {
		return nil, err
	}
	if isPostgres(c.DB) {
		options := c.Postgres.options()
		options.NoNotify = true // a server makes the channel of notifications
		return postgres.Open(ctx, c.DB, options)
	}
	return sqlite.Open(ctx, c.DB, sqlite.Options{ReadOnly: true})
}

func (o postgresConfig) options() postgres.Options {
	return postgres.Options{
		MaxOpen: o.MaxOpen, MaxIdleTime: o.MaxIdleTime.value(), Timeout: o.Timeout.value(),
		SynchronousCommit: o.SynchronousCommit,
		NoNotify:          o.NoNotify, Exact: o.Exact, Pooler: o.Pooler,
	}
}

// exists refuses a SQLite file that does not exist, which openDatabase would create.
func exists(db string) error {
	if isPostgres(db) {
		return nil
	}
	if _, err := os.Stat(db); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return nil
}

// migrations returns the script that brings a database up to date. With all it returns the script
// for an empty database, and opens none.
func (c *config) migrations(ctx context.Context, all bool) (string, error) {
	db := c.DB
	switch {
	case all && isPostgres(db):
		return sqlstore.SQL(postgres.Dialect()), nil
	case all:
		return sqlstore.SQL(sqlite.Dialect()), nil
	case isPostgres(db):
		return postgres.Pending(ctx, db, c.Postgres.options())
	}
	return sqlite.Pending(ctx, db)
}

// withoutPassword returns an address that the server may print. PASSWORD stands in place of a
// password, or URL in place of an address that cannot be parsed.
func withoutPassword(db string) (shown string, hidden bool) {
	if !isPostgres(db) {
		return db, false
	}
	address, err := url.Parse(db)
	if err != nil {
		return "URL", true
	}
	if _, hidden = address.User.Password(); hidden {
		address.User = url.UserPassword(address.User.Username(), "PASSWORD")
	}
	query := address.Query()
	for name := range query {
		if strings.Contains(name, "password") {
			query.Set(name, "PASSWORD")
			hidden = true
		}
	}
	address.RawQuery = query.Encode()
	return address.String(), hidden
}

// isFresh reports whether the host has never written to a store. The generation of a store grows
// with every mutation. So a store is not fresh if a start made one mutation and then broke off.
func isFresh(ctx context.Context, store svc.Store) (bool, error) {
	query := svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: administrator}}
	snapshot, err := store.Access(ctx, query)
	if err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	return snapshot.Generation == 0, nil
}
