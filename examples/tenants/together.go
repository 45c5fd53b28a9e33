package main

import (
	"context"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlstore"
)

// takeSeat makes a user of a tenant and the host's own row about that user. An
// error leaves neither.
func takeSeat(
	ctx context.Context, tenants *svc.Tenants, store *postgres.Tenants, name, user string,
) error {
	return tenants.Use(ctx, name, func(service *svc.Service) error {
		tenant := service.Tenant()
		tx, err := store.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		inTx := service.WithTx(sqlstore.Tx(tx, store.Dialect(tenant)))
		if _, err := inTx.Users.Create(ctx, svc.Host, svc.User{ID: user}); err != nil {
			return err
		}
		const insert = `INSERT INTO seats (tenant, holder) VALUES ($1, $2)`
		if _, err := tx.ExecContext(ctx, insert, tenant.Number, user); err != nil {
			return err
		}
		return tx.Commit()
	})
}
