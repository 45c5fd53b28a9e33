package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// settle is how long other processes may serve a tenant that is suspended here.
const settle = 2 * time.Second

// move copies a tenant into one of the same name in another database. That one is suspended until
// it is whole, and the one here stays suspended. After an error the tenant here is served again,
// and move may be called again.
func move(
	ctx context.Context, tenants *svc.Tenants, from, to svc.TenantStore, name string,
) (err error) {
	old, err := tenants.Get(ctx, name)
	if err != nil {
		return err
	}
	moved, err := to.CreateTenant(ctx, name, svc.TenantSuspended, time.Now())
	made := err == nil
	if errors.Is(err, svc.ErrExists) { // perhaps by a move that was killed
		moved, err = to.Tenant(ctx, name)
	}
	if err != nil {
		return err
	}
	if moved.State != svc.TenantSuspended {
		return fmt.Errorf("tenant %q is served from there already", name)
	}
	defer func() {
		undo := context.WithoutCancel(ctx)
		if err != nil && made {
			err = errors.Join(err, to.DropTenant(undo, moved.Number))
		}
		if err != nil && old.State == svc.TenantActive {
			err = errors.Join(err, tenants.Resume(undo, name))
		}
	}()
	if err := tenants.Suspend(ctx, name); err != nil {
		return err
	}
	time.Sleep(settle)
	if err := copyRows(ctx, from, old, to, moved); err != nil {
		return err
	}
	return to.ChangeTenant(ctx, moved.Number, svc.TenantActive)
}

// copyRows copies all rows of a tenant into those of another, which has none. It fails when
// somebody writes to the tenant in the meantime.
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
	before, err := source.Changes(ctx, 0)
	if err != nil {
		return err
	}
	if err := sqlstore.Copy(ctx, source.(sqlstore.Opened), target.(sqlstore.Opened)); err != nil {
		return err
	}
	after, err := source.Changes(ctx, 0)
	if err == nil && after.Generation != before.Generation {
		err = errors.New("somebody still writes to the tenant: try again when its calls have ended")
	}
	return err
}
