package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
)

// pgxShop is a shop whose own code uses pgx without database/sql. svc shares its pool.
type pgxShop struct {
	pool    *pgxpool.Pool
	store   *postgres.Store
	service *svc.Service
}

// openPgx opens the PostgreSQL database at url. It sets config.Store.
func openPgx(ctx context.Context, url string, config svc.Config) (*pgxShop, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	s := &pgxShop{pool: pool}
	if err := s.start(ctx, config); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *pgxShop) start(ctx context.Context, config svc.Config) (err error) {
	const table = `CREATE TABLE IF NOT EXISTS customers (id TEXT PRIMARY KEY)`
	if _, err := s.pool.Exec(ctx, table); err != nil {
		return err
	}
	if s.store, err = postgres.New(ctx, s.pool, postgres.Options{}); err != nil {
		return err
	}
	config.Store = s.store
	s.service, err = svc.New(config)
	return err
}

// close stops the delivery of events, then closes the store, and last the shop's own pool.
func (s *pgxShop) close() (err error) {
	if s.service != nil {
		err = s.service.Close()
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	s.pool.Close()
	return err
}

// signUp adds a customer and issues the customer's API key. An error leaves neither.
func (s *pgxShop) signUp(ctx context.Context, customer string) (key svc.Secret, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		const insert = `INSERT INTO customers (id) VALUES ($1)`
		if _, err := tx.Exec(ctx, insert, customer); err != nil {
			return err
		}
		inTx := s.service.WithTx(s.store.Tx(tx))
		holder := svc.Identity{Kind: svc.KindUser, ID: customer}
		issued, err := inTx.Keys.Issue(ctx, svc.Host, holder, svc.NewAPIKey{})
		key = issued.Key
		return err
	})
	return key, err
}
