package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// RunTenants is [Run] for a [svc.TenantStore]: it checks what RunTenants says of the list of
// tenants, and that their Stores are apart. Run checks the Store of one tenant.
func RunTenants(t *testing.T, newTenants func(t *testing.T) svc.TenantStore) {
	for _, rule := range tenantRules {
		t.Run(rule.says, func(t *testing.T) {
			if err := rule.broken(newTenants(t)); err != nil {
				t.Errorf("broken rule: %s.\n%v", rule.says, err)
			}
		})
	}
}

// tenantRule is a rule of a [svc.TenantStore].
type tenantRule struct {
	says  string
	check func(c *tenantChecker)
}

// tenantChecker holds the store under test.
type tenantChecker struct {
	svc.TenantStore
	*checker // without a Store
}

func (r tenantRule) broken(store svc.TenantStore) error {
	return seen(func() {
		r.check(&tenantChecker{store, &checker{ctx: context.Background()}})
	})
}

// tenantNames are few of the odd ones, in byte order: a store may need a while to make a tenant.
var tenantNames = []string{
	" ", "$1", "' OR '1'='1", "-- ", "A", "a", "a ", "e\u0301", strings.Repeat("x", 128), "\u00e9",
	strings.Repeat("\U0001f600", 128),
}

var tenantRules = []tenantRule{
	{"CreateTenant returns a tenant in its state, and Tenant and Tenants return the same, " +
		"whatever its name", func(c *tenantChecker) {
		var want []svc.Tenant
		for i, name := range tenantNames {
			tenant := c.create(name, at(int64(i)))
			c.same("what was made", tenant, svc.Tenant{
				Name: name, Number: tenant.Number, State: svc.TenantActive, CreatedAt: at(int64(i)),
			})
			want = append(want, tenant)
		}
		hidden := must(c.CreateTenant(c.ctx, "\U0001f601", svc.TenantSuspended, at(0)))
		c.same("its state", hidden.State, svc.TenantSuspended)
		want = append(want, hidden)
		for _, tenant := range want {
			c.same("the tenant", must(c.Tenant(c.ctx, tenant.Name)), tenant)
		}
		for _, limit := range []int{1, 7, 1000} {
			c.same("the list, sorted by name", c.list(limit), want)
		}
	}},
	{"Tenant, ChangeTenant and DropTenant of none are ErrNotFound, " +
		"and Tenants of none is empty", func(c *tenantChecker) {
		c.same("the list", c.list(10), []svc.Tenant(nil))
		tenant := c.create("a", at(0))
		for _, name := range []string{"A", "a ", "", "b"} {
			c.is("Tenant", second(c.Tenant(c.ctx, name)), svc.ErrNotFound)
		}
		for _, number := range []int64{tenant.Number + 1, -1} {
			c.is("ChangeTenant", c.ChangeTenant(c.ctx, number, svc.TenantSuspended),
				svc.ErrNotFound)
			c.is("DropTenant", c.DropTenant(c.ctx, number), svc.ErrNotFound)
		}
		c.same("the list", c.list(10), []svc.Tenant{tenant})
	}},
	{"CreateTenant of a taken name is ErrExists, in every state", func(c *tenantChecker) {
		tenant := c.create("a", at(0))
		for _, state := range []svc.TenantState{
			svc.TenantActive, svc.TenantSuspended, svc.TenantDropping,
		} {
			c.ok(c.ChangeTenant(c.ctx, tenant.Number, state))
			_, err := c.CreateTenant(c.ctx, "a", svc.TenantActive, at(1))
			c.is("CreateTenant", err, svc.ErrExists)
			tenant.State = state
			c.same("the list", c.list(10), []svc.Tenant{tenant})
		}
	}},
	{"of concurrent CreateTenant calls with one name, one wins, and all others are ErrExists",
		func(c *tenantChecker) {
			c.oneWins(race(func(int) error {
				_, err := c.CreateTenant(c.ctx, "a", svc.TenantActive, at(0))
				return err
			}), svc.ErrExists)
		}},
	{"of concurrent CreateTenant calls with many names, all succeed, each with its own number",
		func(c *tenantChecker) {
			c.together(1, func(i, _ int) { c.create(fmt.Sprint(i), at(0)) })
			numbers := column(c.list(100), func(t svc.Tenant) int64 { return t.Number })
			slices.Sort(numbers)
			c.same("how many numbers", len(slices.Compact(numbers)), racers)
		}},
	{"DropTenant frees the name, and no later tenant has the number or a row of the old one",
		func(c *tenantChecker) {
			used := map[int64]bool{}
			for range 3 {
				tenant := c.create("a", at(0))
				if used[tenant.Number] {
					c.fail("the number %d is used twice", tenant.Number)
				}
				used[tenant.Number] = true
				c.in(tenant, func(s *checker) { c.same("its users", s.userIDs(), []string(nil)) })
				c.in(tenant, func(s *checker) { s.addUser("u") })
				c.ok(c.DropTenant(c.ctx, tenant.Number))
				c.is("Tenant", second(c.Tenant(c.ctx, "a")), svc.ErrNotFound)
				c.is("DropTenant", c.DropTenant(c.ctx, tenant.Number), svc.ErrNotFound)
			}
		}},
	{"OpenTenant returns the rows of the tenant and of no other, also when it is opened again",
		func(c *tenantChecker) {
			names := []string{"a", "A", "b"}
			for _, name := range names {
				c.in(c.create(name, at(0)), func(s *checker) {
					s.addUser("of " + name)
					c.ok(s.CreateTemplate(c.ctx, handMade("t")))
					c.ok(s.CreateAPIKey(c.ctx, newKey("k", alice, at(0))))
				})
			}
			for _, tenant := range c.list(10) {
				c.in(tenant, func(s *checker) {
					c.same("its users", s.userIDs(), []string{"of " + tenant.Name})
				})
			}
		}},
	{"OpenTenant and MigrateTenant of a dropped tenant are ErrNotFound or ErrUnavailable, " +
		"and make nothing",
		func(c *tenantChecker) {
			tenant := c.create("a", at(0))
			c.ok(c.MigrateTenant(c.ctx, tenant))
			c.ok(c.DropTenant(c.ctx, tenant.Number))
			for range 2 {
				_, _, err := c.OpenTenant(c.ctx, tenant)
				c.gone("OpenTenant", err)
				c.gone("MigrateTenant", c.MigrateTenant(c.ctx, tenant))
			}
			c.same("the list", c.list(10), []svc.Tenant(nil))
		}},
	{"OpenTenant opens a tenant twice at once, with the same rows", func(c *tenantChecker) {
		tenant := c.create("a", at(0))
		c.in(tenant, func(one *checker) {
			c.in(tenant, func(other *checker) {
				one.addUser("u")
				c.same("its users", other.userIDs(), []string{"u"})
			})
			one.addUser("v")
		})
	}},
	{"a mutation of one tenant is none of another, and none of the list", func(c *tenantChecker) {
		a, b := c.create("a", at(0)), c.create("b", at(0))
		c.in(a, func(one *checker) {
			c.in(b, func(other *checker) {
				list, quiet := c.generation(), other.generation()
				one.addUser("u")
				c.same("the generation of the other", other.generation(), quiet)
				c.same("the generation of the list", c.generation(), list)
			})
		})
	}},
	{"OpenTenant ignores the state", func(c *tenantChecker) {
		tenant := c.create("a", at(0))
		for _, state := range []svc.TenantState{svc.TenantSuspended, svc.TenantDropping} {
			c.ok(c.ChangeTenant(c.ctx, tenant.Number, state))
			c.in(tenant, func(s *checker) { s.addUser(string(state)) })
		}
	}},
	{"a mutation of the list raises its generation by one, with the name as the target, " +
		"and a call that fails does not", func(c *tenantChecker) {
		c.create("other", at(0))
		tenant := svc.Tenant{}
		drop := func() error { return c.DropTenant(c.ctx, tenant.Number) }
		for _, call := range []struct {
			name string
			do   func() error
			want error
		}{
			{"CreateTenant", func() (err error) {
				tenant, err = c.CreateTenant(c.ctx, "a", svc.TenantActive, at(0))
				return err
			}, nil},
			{"CreateTenant", func() error {
				_, err := c.CreateTenant(c.ctx, "a", svc.TenantActive, at(0))
				return err
			}, svc.ErrExists},
			{"ChangeTenant", func() error {
				return c.ChangeTenant(c.ctx, tenant.Number, svc.TenantSuspended)
			}, nil},
			{"ChangeTenant", func() error {
				return c.ChangeTenant(c.ctx, tenant.Number+1000, svc.TenantSuspended)
			}, svc.ErrNotFound},
			{"DropTenant", drop, nil},
			{"DropTenant", drop, svc.ErrNotFound},
		} {
			before := c.generation()
			if err := call.do(); !errors.Is(err, call.want) {
				c.fail("%s: got the error %v, want %v", call.name, err, call.want)
			}
			want := svc.StoreChanges{Generation: before}
			if call.want == nil {
				want.Generation++
				want.Targets = []svc.Target{{Kind: event.TargetTenant, ID: "a"}}
			}
			c.same("changes after "+call.name, must(c.Changes(c.ctx, before)), want)
		}
	}},
	{"AwaitChange returns when the list has changed", func(c *tenantChecker) {
		made := 0
		c.soon(c.generation, func(since int64) error {
			return c.AwaitChange(c.ctx, since)
		}, func() error {
			made++
			_, err := c.CreateTenant(c.ctx, fmt.Sprint(made), svc.TenantActive, at(0))
			return err
		})
	}},
	{"a call whose context has ended returns its error, and changes nothing",
		func(c *tenantChecker) {
			tenant := c.create("a", at(0))
			ended, end := context.WithCancel(c.ctx)
			end()
			_, err := c.CreateTenant(ended, "b", svc.TenantActive, at(0))
			c.is("CreateTenant", err, context.Canceled)
			c.is("Tenant", second(c.Tenant(ended, "a")), context.Canceled)
			c.is("Tenants", second(c.TenantStore.Tenants(ended, "", 10)), context.Canceled)
			c.is("ChangeTenant",
				c.ChangeTenant(ended, tenant.Number, svc.TenantSuspended), context.Canceled)
			c.is("DropTenant", c.DropTenant(ended, tenant.Number), context.Canceled)
			_, _, err = c.OpenTenant(ended, tenant)
			c.is("OpenTenant", err, context.Canceled)
			c.is("MigrateTenant", c.MigrateTenant(ended, tenant), context.Canceled)
			c.same("the list", c.list(10), []svc.Tenant{tenant})
		}},
	{"events of a tenant's Store are in the outbox of all, or in its own when there is none",
		func(c *tenantChecker) {
			a, b := c.create("a", at(0)), c.create("b", at(0))
			// Not times of the suite: a store may compare them with the clock of the machine.
			now := time.Now().UTC().Truncate(time.Microsecond)
			until := now.Add(time.Minute)
			c.in(a, func(one *checker) {
				c.in(b, func(other *checker) {
					if one.OutboxStore == nil {
						return
					}
					c.ok(one.AddEvents(c.ctx, []svc.Event{newEvent(1)}))
					from := cmp.Or(c.Outbox(), one.OutboxStore)
					if c.Outbox() == nil {
						c.same("events of another", len(other.claim(now, until, 10)), 0)
					}
					events := must(from.ClaimEvents(c.ctx, now, until, 10))
					c.same("the events", events, []svc.Event{newEvent(1)})
				})
			})
		}},
}

func (c *tenantChecker) create(name string, at time.Time) svc.Tenant {
	return must(c.CreateTenant(c.ctx, name, svc.TenantActive, at))
}

// gone expects the error of a tenant that was dropped.
func (c *tenantChecker) gone(doing string, err error) {
	if !errors.Is(err, svc.ErrNotFound) {
		c.is(doing, err, svc.ErrUnavailable)
	}
}

// list returns all tenants, read in chunks.
func (c *tenantChecker) list(limit int) []svc.Tenant {
	return wholePages(c.checker, limit, func(last svc.Tenant) ([]svc.Tenant, error) {
		return c.TenantStore.Tenants(c.ctx, last.Name, limit)
	})
}

// in calls do with the Store of a tenant.
func (c *tenantChecker) in(tenant svc.Tenant, do func(s *checker)) {
	store, end, err := c.OpenTenant(c.ctx, tenant)
	c.ok(err)
	defer func() { c.ok(end()) }()
	do(&checker{Store: store, roles: rolesOf(store), ctx: c.ctx})
}

// generation returns the generation of the list.
func (c *tenantChecker) generation() int64 {
	return must(c.Changes(c.ctx, 0)).Generation
}

func (c *checker) addUser(id string) { c.apply(svc.Bundle{Users: users(id)}) }

func (c *checker) userIDs() []string {
	return column(c.allAccess().Users, func(u svc.User) string { return u.ID })
}
