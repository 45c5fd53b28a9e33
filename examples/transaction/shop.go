package main

import (
	"context"
	"errors"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// shop is a host with a table of its own in the database of svc.
type shop struct {
	store   *sqlite.Store
	service *svc.Service
}

// open opens the database at path; config needs no Store.
func open(ctx context.Context, path string, config svc.Config) (*shop, error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS customers (id TEXT PRIMARY KEY)`); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	config.Store = store
	service, err := svc.New(config)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &shop{store, service}, nil
}

// close ends the delivery of events before it closes the database.
func (s *shop) close() error { return errors.Join(s.service.Close(), s.store.Close()) }

// signUp adds a customer and issues their API key. When it fails, there is neither.
func (s *shop) signUp(ctx context.Context, customer string) (svc.Secret, error) {
	tx, err := s.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO customers (id) VALUES (?)`, customer); err != nil {
		return "", err
	}
	inTx := s.service.WithStore(sqlstore.Tx(tx, sqlite.Dialect()))
	issued, err := inTx.IssueAPIKey(ctx, svc.Host, svc.Identity{Kind: svc.KindUser, ID: customer}, svc.NewAPIKey{})
	if err != nil {
		return "", err
	}
	return issued.Key, tx.Commit()
}
