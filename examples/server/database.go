package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// database is the store of the host. The host closes it.
type database interface {
	svc.Store
	Close() error
}

// isPostgres reports whether db is the address of a PostgreSQL server. Otherwise db is the path of
// a SQLite file.
func isPostgres(db string) bool {
	scheme, _, _ := strings.Cut(db, "://")
	return scheme != db && (scheme == "postgres" || scheme == "postgresql")
}

func openDatabase(ctx context.Context, db string) (database, error) {
	if isPostgres(db) {
		return postgres.Open(ctx, db, postgres.Options{})
	}
	return sqlite.Open(ctx, db, sqlite.Options{})
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
func migrations(ctx context.Context, db string, all bool) (string, error) {
	switch {
	case all && isPostgres(db):
		return sqlstore.SQL(postgres.Dialect()), nil
	case all:
		return sqlstore.SQL(sqlite.Dialect()), nil
	case isPostgres(db):
		return postgres.Pending(ctx, db, postgres.Options{})
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
		if strings.Contains(name, "password") && name != "passfile" {
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
