package main

import (
	"context"
	"errors"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// shop is a host with its own table in the database of svc.
type shop struct {
	store   *sqlite.Store
	service *svc.Service
}

// open opens the database at path. It sets config.Store.
func open(ctx context.Context, path string, config svc.Config) (*shop, error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	const table = `CREATE TABLE IF NOT EXISTS customers (id TEXT PRIMARY KEY)`
	if _, err := store.DB().ExecContext(ctx, table); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	config.Store = store
	service, err := svc.New(config)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &shop{store, service}, nil
}

// close stops the delivery of events, then closes the database.
func (s *shop) close() error { return errors.Join(s.service.Close(), s.store.Close()) }

// leave removes a customer, the customer's keys and everything else that svc has of the customer.
// An error removes nothing.
func (s *shop) leave(ctx context.Context, customer string) error {
	tx, err := s.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	const remove = `DELETE FROM customers WHERE id = ?`
	if _, err := tx.ExecContext(ctx, remove, customer); err != nil {
		return err
	}
	inTx := s.service.WithTx(sqlstore.Tx(tx, sqlite.Dialect()))
	err = inTx.ForgetUser(ctx, svc.Host, customer)
	if err != nil && svc.ErrorCode(err) != svc.CodeNotFound { // not found: svc has nothing
		return err
	}
	return tx.Commit()
}

// signUp adds a customer and issues the customer's API key. An error leaves neither.
func (s *shop) signUp(ctx context.Context, customer string) (svc.Secret, error) {
	tx, err := s.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after Commit
	const insert = `INSERT INTO customers (id) VALUES (?)`
	if _, err := tx.ExecContext(ctx, insert, customer); err != nil {
		return "", err
	}
	inTx := s.service.WithTx(sqlstore.Tx(tx, sqlite.Dialect()))
	holder := svc.Identity{Kind: svc.KindUser, ID: customer}
	issued, err := inTx.Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{})
	if err != nil {
		return "", err
	}
	return issued.Key, tx.Commit()
}
