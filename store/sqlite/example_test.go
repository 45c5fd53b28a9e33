package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// Open makes the file and its tables. The store is closed after the Service.
func ExampleOpen() {
	ctx, path := context.Background(), exampleFile("svc.db")
	defer os.RemoveAll(filepath.Dir(path))
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	service, err := svc.New(svc.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	fmt.Println(service.Ping(ctx))
	// Output:
	// <nil>
}

// The host's own tables are in the same file: its row and a key are written together, or neither.
func ExampleStore_DB() {
	ctx, path := context.Background(), exampleFile("host.db")
	defer os.RemoveAll(filepath.Dir(path))
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	service, err := svc.New(svc.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	const table = "CREATE TABLE customers (id TEXT PRIMARY KEY)"
	if _, err := store.DB().ExecContext(ctx, table); err != nil {
		log.Fatal(err)
	}

	signUp := func(customer string) (svc.Secret, error) {
		tx, err := store.DB().BeginTx(ctx, nil)
		if err != nil {
			return "", err
		}
		defer tx.Rollback() // does nothing after Commit
		const insert = "INSERT INTO customers (id) VALUES (?)"
		if _, err := tx.ExecContext(ctx, insert, customer); err != nil {
			return "", err
		}
		inTx := service.WithTx(sqlstore.Tx(tx, sqlite.Dialect()))
		holder := svc.Identity{Kind: svc.KindUser, ID: customer}
		issued, err := inTx.Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{})
		if err != nil {
			return "", err
		}
		return issued.Key, tx.Commit()
	}
	key, err := signUp("ada")
	if err != nil {
		log.Fatal(err)
	}
	who, err := service.Authenticate(ctx, string(key))
	fmt.Println(who.ID, err)
	// Output:
	// ada <nil>
}

// A host that has opened the file itself uses package sqlstore with this dialect.
func ExampleDialect() {
	ctx, path := context.Background(), exampleFile("host.db")
	defer os.RemoveAll(filepath.Dir(path))
	db, err := sql.Open("sqlite", "file:"+path+
		"?_txlock=immediate&_pragma=foreign_keys(1)&_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := sqlstore.New(db, db, sqlite.Dialect())
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	missing, err := sqlstore.Pending(ctx, db, sqlite.Dialect())
	fmt.Printf("%q %v\n", missing, err)
	// Output:
	// "" <nil>
}

// exampleFile returns the path of a file in a new directory.
func exampleFile(name string) string {
	dir, err := os.MkdirTemp("", "svc-example")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, name)
}
