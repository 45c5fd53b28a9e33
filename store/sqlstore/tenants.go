package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// Registry keeps the list of tenants in the database of a Store: their names, numbers and states.
// It keeps none of their data. Use [NewRegistry]. All methods are safe for concurrent use.
type Registry struct{ store *Store }

// TenantList is the part of a [svc.TenantStore] that a Registry implements. The methods of
// ChangeStore are those of the Store: a change of the list is a mutation.
type TenantList interface {
	svc.ChangeStore
	Tenant(ctx context.Context, name string) (svc.Tenant, error)
	Tenants(ctx context.Context, after string, limit int) ([]svc.Tenant, error)
	ChangeTenant(ctx context.Context, number int64, state svc.TenantState) error
}

var _ TenantList = (*Registry)(nil)

// TenantNumber is the number of the tenant in [Dialect.Tenant], 0 for none.
func (s *Store) TenantNumber() int64 {
	if s.dialect.Tenant == nil {
		return 0
	}
	return s.dialect.Tenant.Number
}

// The tables of a registry. No migration makes them: most databases have no tenants.
var registryTables = []string{
	`CREATE TABLE IF NOT EXISTS svc_tenants (
  number BIGINT NOT NULL PRIMARY KEY,
  name {text} NOT NULL UNIQUE,
  state {text} NOT NULL,
  created_at BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS svc_tenant_numbers (
  id BIGINT NOT NULL PRIMARY KEY,
  latest BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS svc_tenant_lanes (
  number BIGINT NOT NULL,
  lane BIGINT NOT NULL,
  moves BIGINT NOT NULL,
  PRIMARY KEY (number, lane))`,
	`DROP TABLE IF EXISTS svc_tenant_moves`, // of an earlier version
	`INSERT INTO svc_tenant_numbers (id, latest) VALUES (1, 0) ON CONFLICT DO NOTHING`,
}

// NewRegistry returns the registry in the database of a migrated Store, and makes its tables. It
// refuses those that only a later schema of the search path has.
func NewRegistry(ctx context.Context, store *Store) (*Registry, error) {
	r := &Registry{store}
	if _, _, err := store.dialect.locate(ctx, store.write.db, "svc_tenants"); err != nil {
		return nil, store.fault(ctx, "make the registry", err)
	}
	_, err := one(ctx, store.db.reading(), scanValue[int64],
		`SELECT COUNT(*) FROM svc_tenant_lanes WHERE number = 0`)
	if err == nil {
		return r, nil
	}
	types := strings.NewReplacer("{text}", store.dialect.Text)
	err = store.transact(ctx, "make the registry", func(ctx context.Context, tx session) error {
		if lock := store.dialect.Lock; lock != "" {
			if _, err := tx.exec(ctx, lock, store.dialect.Schema); err != nil {
				return err
			}
		}
		for _, statement := range registryTables {
			if _, err := tx.exec(ctx, types.Replace(statement)); err != nil {
				return err
			}
		}
		return nil
	})
	return r, err
}

// Create adds a tenant under a number that no tenant ever had. build makes what belongs to it, in
// the same transaction; it may run again. ErrExists.
func (r *Registry) Create(
	ctx context.Context, name string, state svc.TenantState, at time.Time,
	build func(ctx context.Context, tx *sql.Tx, made svc.Tenant) error,
) (svc.Tenant, error) {
	t := svc.Tenant{Name: name, State: state, CreatedAt: at}
	// A separate transaction: the row of the numbers must not stay locked while build works.
	number := func(ctx context.Context, tx session) (err error) {
		t.Number, err = one(ctx, tx, scanValue[int64], `UPDATE svc_tenant_numbers
			SET latest = latest + 1 WHERE id = 1 RETURNING latest`)
		return err
	}
	err := r.store.transact(ctx, "number a tenant", number)
	if err != nil {
		return svc.Tenant{}, err
	}
	target := svc.Target{Kind: event.TargetTenant, ID: name}
	err = r.store.change(ctx, "create a tenant", target, func(
		ctx context.Context, tx session,
	) error {
		err := tx.create(ctx, `INSERT INTO svc_tenants (number, name, state, created_at)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			t.Number, name, string(t.State), at.UnixMicro())
		if err == nil {
			err = build(ctx, tx.tx, t)
		}
		return err
	})
	if err != nil {
		return svc.Tenant{}, err
	}
	return t, nil
}

const selectTenants = `SELECT number, name, state, created_at FROM svc_tenants WHERE `

func scanTenant(row scanner) (t svc.Tenant, err error) {
	err = row.Scan(&t.Number, &t.Name, (*string)(&t.State), micro{&t.CreatedAt})
	return t, err
}

// Tenant returns the tenant of that name. ErrNotFound.
func (r *Registry) Tenant(ctx context.Context, name string) (svc.Tenant, error) {
	t, err := one(ctx, r.store.db.reading(), scanTenant, selectTenants+`name = $1`, name)
	return t, r.store.fault(ctx, "read a tenant", err)
}

// Tenants returns a chunk of the tenants with names after one, sorted by name in byte order.
func (r *Registry) Tenants(ctx context.Context, after string, limit int) ([]svc.Tenant, error) {
	list, err := all(ctx, r.store.db.reading(), scanTenant,
		selectTenants+`name > $1 ORDER BY name LIMIT 0 + $2`, after, limit)
	return list, r.store.fault(ctx, "list tenants", err)
}

// ChangeTenant sets the state of a tenant. ErrNotFound.
func (r *Registry) ChangeTenant(ctx context.Context, number int64, state svc.TenantState) error {
	return r.store.mutate(ctx, "change a tenant", func(
		ctx context.Context, tx session, m *mutation,
	) error {
		name, err := one(ctx, tx, scanValue[string],
			`UPDATE svc_tenants SET state = $1 WHERE number = $2 RETURNING name`,
			string(state), number)
		m.Targets = []svc.Target{{Kind: event.TargetTenant, ID: name}}
		return err
	})
}

// Delete takes a tenant off the list. remove, unless nil, removes what belongs to the number, in
// the same transaction; it may run again. ErrNotFound.
func (r *Registry) Delete(
	ctx context.Context, number int64, remove func(ctx context.Context, tx *sql.Tx) error,
) error {
	return r.store.mutate(ctx, "drop a tenant", func(
		ctx context.Context, tx session, m *mutation,
	) error {
		name, err := one(ctx, tx, scanValue[string],
			`DELETE FROM svc_tenants WHERE number = $1 RETURNING name`, number)
		m.Targets = []svc.Target{{Kind: event.TargetTenant, ID: name}}
		if err == nil && remove != nil {
			err = remove(ctx, tx.tx)
		}
		if err == nil {
			_, err = tx.exec(ctx, `DELETE FROM svc_tenant_lanes WHERE number = $1`, number)
		}
		return err
	})
}

// Changes implements [svc.ChangeStore].
func (r *Registry) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	return r.store.Changes(ctx, since)
}

// AwaitChange implements [svc.ChangeStore].
func (r *Registry) AwaitChange(ctx context.Context, since int64) error {
	return r.store.AwaitChange(ctx, since)
}
