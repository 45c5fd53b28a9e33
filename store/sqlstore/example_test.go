package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"log"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// A host brings a pool that it has opened itself. Its driver's package has the dialect: packages
// sqlite and postgres of this repository have one each.
func ExampleNew() {
	var dialect sqlstore.Dialect // sqlite.Dialect() or postgres.Dialect()
	db, err := sql.Open("sqlite", "file:host.db?_txlock=immediate&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // after the Service
	store := sqlstore.New(db, db, dialect)
	if err := store.Migrate(context.Background()); err != nil { // makes the tables
		log.Fatal(err)
	}
	service, err := svc.New(svc.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
}

// In a transaction of the host, a key is issued exactly when the host's own row is written.
// Package sqlite has this as an example that runs.
func ExampleTx() {
	var dialect sqlstore.Dialect // sqlite.Dialect() or postgres.Dialect()
	signUp := func(ctx context.Context, service *svc.Service, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO customers (id) VALUES ('ada')"); err != nil {
			return err
		}
		inTx := service.WithTx(sqlstore.Tx(tx, dialect))
		ada := svc.Identity{Kind: svc.KindUser, ID: "ada"}
		if _, err := inTx.Keys.Issue(ctx, svc.Host, ada, svc.NewAPIKey{}); err != nil {
			return err // the host rolls back
		}
		return tx.Commit()
	}
	_ = signUp
}

// A migration tool of the host runs the migrations as files.
func ExampleMigrations() {
	files := sqlstore.Migrations(sqlstore.Dialect{Text: "TEXT", Bytes: "BLOB", Serial: "INTEGER", OneWriter: true})
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(names[0])
	// Output: 0001_svc.up.sql
}
