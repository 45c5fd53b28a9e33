package main

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
	"github.com/extsvc/svc/store/sqlstore"
)

// TestKnownUser: the shop tells svc which users exist, by its own table and on another connection.
// That connection does not see a transaction, and SQLite has no other one that writes. Yet all that
// the shop does with keys works in the transaction in which the customer begins to exist.
func TestKnownUser(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, db string) {
		is := is.New(t)
		var s shopAt
		s, _ = openTest(t, db, func(c *svc.Config) {
			c.Keys.Peppers = []svc.Pepper{{Version: "1", Secret: make([]byte, 32)}}
			c.Keys.Imports = []svc.KeyImport{{Prefix: "old_"}}
			c.Users.Known = func(ctx context.Context, id string) (known bool, err error) {
				err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM customers WHERE id = $1)`, id).Scan(&known)
				return known, err
			}
		})
		for name, host := range map[string]svc.Principal{"ada": svc.Host, "grace": svc.Host.As("sign-up")} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			customer := svc.Identity{Kind: svc.KindUser, ID: name}
			var kept svc.IssuedKey
			is.NoErr(inTransaction(ctx, s, func(exec func(string, ...any) error, inTx *svc.Service) (err error) {
				is.NoErr(exec(`INSERT INTO customers (id) VALUES ($1)`, customer.ID))
				kept = useKeys(ctx, is, inTx, host, customer)
				return nil
			}))
			is.Equal(must(s.service.Authenticate(ctx, string(kept.Key))).Identity(), customer)
		}
		nobody := svc.Principal{Kind: svc.KindUser, ID: "nobody"}
		_, err := s.service.Keys.Issue(t.Context(), nobody, svc.Me, svc.NewAPIKey{}) // Users.Known is asked about others
		is.Equal(svc.ErrorCode(err), svc.CodeForbidden)
	})
}

// useKeys calls every method of keys that a host may call in its transaction. It returns a key that
// is good.
func useKeys(ctx context.Context, is *is.I, inTx *svc.Service, host svc.Principal, customer svc.Identity) svc.IssuedKey {
	is.Helper()
	first := must(inTx.Keys.Issue(ctx, host, customer, svc.NewAPIKey{IdempotencyKey: "once-" + customer.ID}))
	hash := sha256.Sum256([]byte("old_" + customer.ID))
	imported := must(inTx.Keys.Import(ctx, host, customer, svc.ImportedKey{Prefix: "old_", Hash: hash[:]}))
	later, off, on := time.Now().Add(time.Hour), true, false
	for _, patch := range []svc.APIKeyPatch{{Disabled: &off}, {Disabled: &on}, {ExpiresAt: &later}} {
		must(inTx.Keys.Patch(ctx, host, customer, first.ID, patch))
	}
	must(inTx.Keys.Rotate(ctx, host, customer, first.ID, svc.Rotation{Overlap: time.Minute}))
	is.NoErr(inTx.Keys.Revoke(ctx, host, customer, imported.ID))
	is.True(must(inTx.Keys.RevokeAll(ctx, host, customer)) > 0)
	kept := must(inTx.Keys.Issue(ctx, host, customer, svc.NewAPIKey{}))
	listed := 0
	for _, err := range inTx.Keys.List(ctx, host, customer, svc.KeyQuery{}) {
		is.NoErr(err)
		listed++
	}
	is.True(listed > 0)
	return kept
}

// inTransaction runs work in a transaction of the shop.
func inTransaction(
	ctx context.Context, s shopAt, work func(exec func(string, ...any) error, inTx *svc.Service) error,
) error {
	if of, is := s.counter.(*pgxShop); is {
		return pgx.BeginFunc(ctx, of.pool, func(tx pgx.Tx) error {
			return work(func(statement string, args ...any) error {
				_, err := tx.Exec(ctx, statement, args...)
				return err
			}, s.service.WithTx(postgres.Tx(tx)))
		})
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	err = work(func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}, s.service.WithTx(sqlstore.Tx(tx, sqlite.Dialect())))
	if err != nil {
		return err
	}
	return tx.Commit()
}
