//go:build planted

package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// TestEveryTenantRuleCanFail is TestEveryRuleCanFail for stores of tenants.
func TestEveryTenantRuleCanFail(t *testing.T) {
	longtest.Test(t, "that each rule of tenants can fail")
	caught := map[string]bool{}
	for name, fault := range tenantFaults {
		breaks := false
		for _, rule := range tenantRules {
			if rule.broken(fault(memstore.NewTenants())) != nil {
				breaks, caught[rule.says] = true, true
			}
		}
		if !breaks {
			t.Errorf("a store breaks no rule: %s", name)
		}
	}
	for _, rule := range tenantRules {
		if !caught[rule.says] {
			t.Errorf("no broken store breaks this rule: %s", rule.says)
		}
	}
}

// good is a store of tenants without a fault. Each faulty one replaces some of its methods.
type good = memstore.Tenants

var tenantFaults = map[string]func(*good) svc.TenantStore{
	"names are folded":                       gets(func(_ *good, t *svc.Tenant) { t.Name = strings.ToLower(t.Name) }),
	"all are active":                         gets(func(_ *good, t *svc.Tenant) { t.State = svc.TenantActive }),
	"times are lost":                         gets(func(_ *good, t *svc.Tenant) { t.CreatedAt = time.Time{} }),
	"the list is in no order":                func(g *good) svc.TenantStore { return listing{g, slices.Reverse[[]svc.Tenant]} },
	"the list lacks the last":                func(g *good) svc.TenantStore { return listing{g, func(l []svc.Tenant) { clear(l[max(0, len(l)-1):]) }} },
	"a taken name is taken over":             gets(takeOver),
	"what exists is no error":                func(g *good) svc.TenantStore { return easy{g} },
	"unknown numbers are no error":           func(g *good) svc.TenantStore { return silent{g} },
	"a name has its number for ever":         func(g *good) svc.TenantStore { return &numbering{good: g, numbers: map[string]int64{}} },
	"all tenants have the number 1":          func(g *good) svc.TenantStore { return listing{g, toOne} },
	"all tenants share a store":              func(g *good) svc.TenantStore { return opening{g, sharedStore()} },
	"a store is empty each time":             func(g *good) svc.TenantStore { return opening{g, func(svc.Tenant) svc.Store { return memstore.New() }} },
	"a store belongs to the name":            func(g *good) svc.TenantStore { return opening{g, storeByName()} },
	"a suspended tenant does not open":       func(g *good) svc.TenantStore { return strict{g} },
	"a dropped tenant opens, empty":          func(g *good) svc.TenantStore { return making{g} },
	"a dropped tenant migrates":              func(g *good) svc.TenantStore { return migrating{g} },
	"changes have no target":                 func(g *good) svc.TenantStore { return vague{g} },
	"a call that fails counts":               func(g *good) svc.TenantStore { return counting{g} },
	"nobody is woken":                        func(g *good) svc.TenantStore { return sleepy{g} },
	"the context is ignored":                 func(g *good) svc.TenantStore { return deaf{g} },
	"the outbox of all is that of nobody":    func(g *good) svc.TenantStore { return elsewhere{g} },
	"a tenant's mutation is one of the list": func(g *good) svc.TenantStore { return loud{g} },
}

// gets returns a fault in what CreateTenant gets.
func gets(fault func(*good, *svc.Tenant)) func(*good) svc.TenantStore {
	return func(g *good) svc.TenantStore { return creating{g, fault} }
}

type creating struct {
	*good
	fault func(*good, *svc.Tenant)
}

func (f creating) CreateTenant(ctx context.Context, name string, state svc.TenantState, at time.Time) (svc.Tenant, error) {
	t := svc.Tenant{Name: name, State: state, CreatedAt: at}
	f.fault(f.good, &t)
	return f.good.CreateTenant(ctx, t.Name, t.State, t.CreatedAt)
}

func takeOver(g *good, t *svc.Tenant) {
	if there, err := g.Tenant(context.Background(), t.Name); err == nil && there.State != svc.TenantActive {
		_ = g.DropTenant(context.Background(), there.Number)
	}
}

type listing struct {
	*good
	spoil func([]svc.Tenant)
}

func (f listing) Tenants(ctx context.Context, after string, limit int) ([]svc.Tenant, error) {
	list, err := f.good.Tenants(ctx, after, limit)
	f.spoil(list)
	return list, err
}

type easy struct{ *good }

func (f easy) CreateTenant(ctx context.Context, name string, state svc.TenantState, at time.Time) (svc.Tenant, error) {
	tenant, err := f.good.CreateTenant(ctx, name, state, at)
	if errors.Is(err, svc.ErrExists) {
		return f.Tenant(ctx, name)
	}
	return tenant, err
}

type silent struct{ *good }

func (f silent) ChangeTenant(ctx context.Context, number int64, state svc.TenantState) error {
	err := f.good.ChangeTenant(ctx, number, state)
	if errors.Is(err, svc.ErrNotFound) {
		return nil
	}
	return err
}

// numbering shows a number that stays with its name.
type numbering struct {
	*good
	mu      sync.Mutex
	numbers map[string]int64
}

func (f *numbering) CreateTenant(ctx context.Context, name string, state svc.TenantState, at time.Time) (svc.Tenant, error) {
	tenant, err := f.good.CreateTenant(ctx, name, state, at)
	f.mu.Lock()
	defer f.mu.Unlock()
	if earlier, there := f.numbers[name]; err == nil && there {
		tenant.Number = earlier
	} else if err == nil {
		f.numbers[name] = tenant.Number
	}
	return tenant, err
}

func toOne(list []svc.Tenant) {
	for i := range list {
		list[i].Number = 1
	}
}

type opening struct {
	*good
	store func(svc.Tenant) svc.Store
}

func (f opening) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	return f.store(tenant), func() error { return nil }, ctx.Err()
}

func sharedStore() func(svc.Tenant) svc.Store {
	all := memstore.New()
	return func(svc.Tenant) svc.Store { return all }
}

func storeByName() func(svc.Tenant) svc.Store {
	all := map[string]svc.Store{}
	return func(tenant svc.Tenant) svc.Store {
		if all[tenant.Name] == nil {
			all[tenant.Name] = memstore.New()
		}
		return all[tenant.Name]
	}
}

type strict struct{ *good }

func (f strict) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	if there, err := f.Tenant(ctx, tenant.Name); err == nil && there.State != svc.TenantActive {
		return nil, nil, svc.ErrNotFound
	}
	return f.good.OpenTenant(ctx, tenant)
}

type making struct{ *good }

func (f making) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	own, end, err := f.good.OpenTenant(ctx, tenant)
	if errors.Is(err, svc.ErrNotFound) {
		return memstore.New(), func() error { return nil }, nil
	}
	return own, end, err
}

type migrating struct{ *good }

func (f migrating) MigrateTenant(ctx context.Context, _ svc.Tenant) error { return ctx.Err() }

type vague struct{ *good }

func (f vague) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	changes, err := f.good.Changes(ctx, since)
	changes.Targets = nil
	return changes, err
}

type counting struct{ *good }

func (f counting) DropTenant(ctx context.Context, number int64) error {
	err := f.good.DropTenant(ctx, number)
	if errors.Is(err, svc.ErrNotFound) {
		list, _ := f.Tenants(ctx, "", 1)
		_ = f.ChangeTenant(ctx, list[0].Number, list[0].State)
	}
	return err
}

type sleepy struct{ *good }

func (f sleepy) AwaitChange(ctx context.Context, _ int64) error {
	time.Sleep(500 * time.Millisecond)
	return ctx.Err()
}

type deaf struct{ *good }

func (f deaf) ChangeTenant(ctx context.Context, number int64, state svc.TenantState) error {
	return f.good.ChangeTenant(context.WithoutCancel(ctx), number, state)
}

type elsewhere struct{ *good }

func (f elsewhere) Outbox() svc.OutboxStore { return memstore.New() }

// loud counts a mutation of a tenant as one of the list.
type loud struct{ *good }

func (f loud) OpenTenant(ctx context.Context, tenant svc.Tenant) (svc.Store, func() error, error) {
	own, end, err := f.good.OpenTenant(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	return loudStore{own.(svc.FullStore), func() error { return f.ChangeTenant(ctx, tenant.Number, tenant.State) }}, end, nil
}

type loudStore struct {
	svc.FullStore
	also func() error
}

func (s loudStore) ChangeAccess(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	return errors.Join(s.FullStore.ChangeAccess(ctx, named, change), s.also())
}
