package main

import (
	"context"
	"errors"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// move copies a tenant into a new one of the same name in another database. The tenant here stays,
// suspended, so that nobody writes to it meanwhile or later.
func move(ctx context.Context, tenants *svc.Tenants, from, to svc.TenantStore, name string) error {
	if err := tenants.Suspend(ctx, name); err != nil {
		return err
	}
	old, err := tenants.Get(ctx, name)
	if err != nil {
		return err
	}
	moved, err := to.CreateTenant(ctx, name, time.Now())
	if err != nil {
		return err
	}
	if err := copyRows(ctx, from, old, to, moved); err != nil {
		return errors.Join(err, to.DropTenant(context.WithoutCancel(ctx), moved.Number))
	}
	return nil
}

// copyRows copies all rows of a tenant into those of another, which has none.
func copyRows(
	ctx context.Context, from svc.TenantStore, old svc.Tenant, to svc.TenantStore, moved svc.Tenant,
) (err error) {
	source, endSource, err := from.OpenTenant(ctx, old)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endSource()) }()
	target, endTarget, err := to.OpenTenant(ctx, moved)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endTarget()) }()
	return sqlstore.Copy(ctx, source.(sqlstore.Opened), target.(sqlstore.Opened))
}
