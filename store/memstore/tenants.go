package memstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// Tenants is a [svc.TenantStore] in memory. Create one with [NewTenants]. All methods are safe for
// concurrent use.
type Tenants struct {
	changes *Store // counts the changes of the list

	mu     sync.Mutex
	latest int64 // number
	list   map[int64]svc.Tenant
	stores map[int64]*Store
}

var _ svc.TenantStore = (*Tenants)(nil)

// NewTenants returns a list of no tenants.
func NewTenants() *Tenants {
	return &Tenants{changes: New(), list: map[int64]svc.Tenant{}, stores: map[int64]*Store{}}
}

// Changes implements [svc.ChangeStore].
func (t *Tenants) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	return t.changes.Changes(ctx, since)
}

// AwaitChange implements [svc.ChangeStore].
func (t *Tenants) AwaitChange(ctx context.Context, since int64) error {
	return t.changes.AwaitChange(ctx, since)
}

// record tells of a change of the list. The caller holds the lock.
func (t *Tenants) record(name string) {
	t.changes.mu.Lock()
	defer t.changes.mu.Unlock()
	t.changes.recordChange(svc.Target{Kind: event.TargetTenant, ID: name})
}

// CreateTenant implements [svc.TenantStore].
func (t *Tenants) CreateTenant(
	ctx context.Context, name string, state svc.TenantState, at time.Time,
) (svc.Tenant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.named(ctx, name); err == nil {
		return svc.Tenant{}, svc.ErrExists
	} else if ctx.Err() != nil {
		return svc.Tenant{}, ctx.Err()
	}
	t.latest++
	made := svc.Tenant{Name: name, Number: t.latest, State: state, CreatedAt: at}
	t.list[made.Number], t.stores[made.Number] = made, New()
	t.record(name)
	return made, nil
}

// named returns the tenant of that name. The caller holds the lock.
func (t *Tenants) named(ctx context.Context, name string) (svc.Tenant, error) {
	if err := ctx.Err(); err != nil {
		return svc.Tenant{}, err
	}
	for _, tenant := range t.list {
		if tenant.Name == name {
			return tenant, nil
		}
	}
	return svc.Tenant{}, svc.ErrNotFound
}

// Tenant implements [svc.TenantStore].
func (t *Tenants) Tenant(ctx context.Context, name string) (svc.Tenant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named(ctx, name)
}

// Tenants implements [svc.TenantStore].
func (t *Tenants) Tenants(
	ctx context.Context, after string, limit int,
) ([]svc.Tenant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []svc.Tenant{}
	for _, tenant := range t.list {
		if tenant.Name > after {
			list = append(list, tenant)
		}
	}
	slices.SortFunc(list, func(a, b svc.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return list[:min(limit, len(list))], ctx.Err()
}

// ChangeTenant implements [svc.TenantStore].
func (t *Tenants) ChangeTenant(ctx context.Context, number int64, state svc.TenantState) error {
	return t.change(ctx, number, func(tenant svc.Tenant) {
		tenant.State = state
		t.list[number] = tenant
	})
}

// DropTenant implements [svc.TenantStore].
func (t *Tenants) DropTenant(ctx context.Context, number int64) error {
	return t.change(ctx, number, func(svc.Tenant) {
		delete(t.list, number)
		delete(t.stores, number)
	})
}

func (t *Tenants) change(
	ctx context.Context, number int64, change func(tenant svc.Tenant),
) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant, there := t.list[number]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !there:
		return svc.ErrNotFound
	}
	change(tenant)
	t.record(tenant.Name)
	return nil
}

// MigrateTenant implements [svc.TenantStore]. There are no tables.
func (t *Tenants) MigrateTenant(ctx context.Context, tenant svc.Tenant) error {
	_, _, err := t.OpenTenant(ctx, tenant)
	return err
}

// OpenTenant implements [svc.TenantStore].
func (t *Tenants) OpenTenant(
	ctx context.Context, tenant svc.Tenant,
) (svc.Store, func() error, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	store, there := t.stores[tenant.Number]
	if !there {
		return nil, nil, cmp.Or(ctx.Err(), error(svc.ErrNotFound))
	}
	return store, func() error { return nil }, ctx.Err()
}

// Outbox implements [svc.TenantStore]: the Store of each tenant keeps its own.
func (t *Tenants) Outbox() svc.OutboxStore { return nil }

// Unsettled implements [svc.TenantStore]. Nothing outlives a crash.
func (t *Tenants) Unsettled(context.Context) ([]string, error) { return nil, nil }
