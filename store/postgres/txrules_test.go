package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/storetest"
)

// TestStoreInPgxTransactions runs all rules of storetest on a Store over a pool of a host that uses
// pgx. The pool is the smallest one, with the simplest protocol. Each call runs in a transaction.
func TestStoreInPgxTransactions(t *testing.T) {
	longtest.Test(t, "the rules of storetest")
	t.Parallel()
	url := pgtest.With(t, migrated(t), "synchronous_commit", "off")
	db, pool := pgtest.Open(t, url), newPool(t, url, atMost(1), func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	store := over(t, pool, postgres.Options{SynchronousCommit: "off", NoNotify: true})
	storetest.Run(t, func(t *testing.T) svc.Store {
		empty(t, db, store)
		return inTxs(store, pool)
	})
}

// inTxs returns a Store whose calls are transactions of the host, except those that make no sense in one.
func inTxs(store *postgres.Store, pool *pgxpool.Pool) svc.Store {
	return &intercept.Store{FullStore: store, Around: func(ctx context.Context, call intercept.Call) error {
		if !call.Writes {
			if read, is := call.Args[0].(svc.AccessRead); is && read.Since > 0 { // a transaction does not know what the Store has returned
				return call.Do()
			}
			return inTx(ctx, pool, store, pgx.RepeatableRead, call) // which sees one state
		}
		err := inTx(ctx, pool, store, pgx.ReadCommitted, call)
		for try := 1; try < 5 && errors.Is(err, svc.ErrChanged); try++ { // as a host does when others were in the way
			err = inTx(ctx, pool, store, pgx.ReadCommitted, call)
		}
		store.Wake() // as a notification does, at once
		return err
	}}
}

func inTx(
	ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, isolation pgx.TxIsoLevel, call intercept.Call,
) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: isolation}, func(tx pgx.Tx) error {
		return call.On(store.Tx(tx))
	})
}
