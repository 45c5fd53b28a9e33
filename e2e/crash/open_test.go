//go:build linux

package crash

import (
	"context"
	"database/sql"
	"net/url"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// open opens the store of a job, and the host's own pool of the same database.
func (j job) open(ctx context.Context) (svc.FullStore, *hostDB, error) {
	store, host, err := j.openDatabase(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = host.ExecContext(ctx, hostTable)
	return store, host, err
}

func (j job) openDatabase(ctx context.Context) (svc.FullStore, *hostDB, error) {
	if j.Driver == "postgres" {
		return j.openPostgres(ctx)
	}
	db := pool(j.Address, j.Fault.synchronous())
	host := &hostDB{db, func(tx *sql.Tx) svc.Store { return sqlstore.Tx(tx, sqlite.Dialect()) }}
	if j.Fault.synchronous() == "off" {
		store := sqlstore.New(db, db, sqlite.Dialect())
		return store, host, store.Migrate(ctx)
	}
	store, err := sqlite.Open(ctx, j.Address, sqlite.Options{Fast: j.Fault == syncNormal})
	return store, host, err
}

func (j job) openPostgres(ctx context.Context) (svc.FullStore, *hostDB, error) {
	options := postgres.Options{}
	if j.Fault == asyncWAL {
		options.SynchronousCommit = "off"
	}
	store, err := postgres.Open(ctx, j.Address, options)
	if err != nil {
		return nil, nil, err
	}
	return store, &hostDB{store.DB(), func(tx *sql.Tx) svc.Store { return sqlstore.Tx(tx, postgres.Dialect()) }}, nil
}

// pool opens a host's own pool of a SQLite file.
func pool(path, synchronous string) *sql.DB {
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(5000)", "foreign_keys(1)", "journal_mode(wal)", "synchronous(" + synchronous + ")",
	}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+settings.Encode())
	if err != nil {
		panic(err) // the driver is imported above
	}
	db.SetMaxOpenConns(1)
	return db
}
