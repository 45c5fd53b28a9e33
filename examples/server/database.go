package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// database is a store that the host owns.
type database interface {
	svc.Store
	Close() error
}

// isPostgres reports whether db is the address of a PostgreSQL server, and not the path of a SQLite file.
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

// migrations is the script that brings a database up to date, or with all that makes the tables in an empty one, for which
// nothing is opened.
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

// withoutPassword is an address as it may be shown: with a word for whoever knows the password to replace.
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

// untouched reports whether nothing was ever written to a store: its generation grows with every mutation, so a start
// that broke off after the first of them is told from one that never came so far.
func untouched(ctx context.Context, store svc.Store) (bool, error) {
	snapshot, err := store.Access(ctx, svc.AccessQuery{Identity: svc.Identity{Kind: svc.KindUser, ID: administrator}})
	if err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	return snapshot.Generation == 0, nil
}
