package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlite"
)

// usualTenants is the folder of tenants without -db.
const usualTenants = "tenants"

// tenantRow is a tenant as the commands show it.
type tenantRow struct {
	Name      string          `json:"name"`
	Number    int64           `json:"number"`
	State     svc.TenantState `json:"state"`
	CreatedAt time.Time       `json:"created_at"`
}

func ofTenant(t svc.Tenant) tenantRow { return tenantRow(t) }

func (t tenantRow) cells() []any {
	return []any{t.Name, t.Number, t.State, t.CreatedAt.Format(time.RFC3339)}
}

// tenantDatabase is the database of all tenants.
type tenantDatabase interface {
	svc.TenantStore
	Close() error
}

// openTenants opens the folder of SQLite files, or the PostgreSQL database, that -db names. Only a
// new tenant makes a folder or tables, and only it and migrate upgrade tables of PostgreSQL.
func (c *call) openTenants(ctx context.Context, command string) (tenantDatabase, error) {
	if isPostgres(c.DB) {
		if command != "create" && command != "migrate" {
			if err := c.checkTables(ctx); err != nil {
				return nil, err
			}
		}
		return postgres.OpenTenants(ctx, c.DB, c.Postgres.options())
	}
	folder := c.DB
	if folder == defaults().DB && !c.flagged["db"] {
		folder = usualTenants
	}
	if _, err := os.Stat(filepath.Join(folder, "tenants.db")); err != nil && command != "create" {
		return nil, fmt.Errorf("tenants: %w", err)
	}
	return sqlite.OpenTenants(ctx, folder, sqlite.Options{Fast: c.SQLite.Fast})
}

// tenantsAction is what a command about tenants does with them.
type tenantsAction func(ctx context.Context, tenants *svc.Tenants) error

// tenantCommand returns a command about tenants.
func tenantCommand(
	name, takes, about string, do func(flags *flag.FlagSet, c *call) tenantsAction,
) subcommand {
	setup := func(flags *flag.FlagSet, c *call) job {
		flags.BoolVar(&c.asJSON, "json", false, "print JSON")
		run := do(flags, c)
		return func(ctx context.Context) error {
			return c.withTenants(ctx, name, run)
		}
	}
	about += ". -db is a folder of SQLite files (without it, " + usualTenants +
		") or a PostgreSQL database"
	return subcommand{name: "tenant " + name, takes: takes, about: about, setup: setup}
}

func (c *call) withTenants(ctx context.Context, command string, run tenantsAction) (err error) {
	store, err := c.openTenants(ctx, command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	tenants, err := svc.NewTenants(svc.TenantsConfig{Store: store})
	if err != nil {
		return err
	}
	defer tenants.Close()
	return run(ctx, tenants)
}

// changeTenant returns what a command does that changes the tenant NAME.
func changeTenant(
	done string, change func(*svc.Tenants, context.Context, string) error,
) func(*flag.FlagSet, *call) tenantsAction {
	return func(_ *flag.FlagSet, c *call) tenantsAction {
		return func(ctx context.Context, tenants *svc.Tenants) error {
			err := change(tenants, ctx, c.operand)
			return c.done(err, "%s tenant %s", done, c.operand)
		}
	}
}

var tenantCommands = []subcommand{
	tenantCommand("list", "", "list the tenants", listTenants),
	tenantCommand("create", "NAME", "make a tenant", createTenant),
	tenantCommand("suspend", "NAME", "serve a tenant no more, and keep its data",
		changeTenant("suspended", (*svc.Tenants).Suspend)),
	tenantCommand("resume", "NAME", "serve a suspended tenant again",
		changeTenant("resumed", (*svc.Tenants).Resume)),
	tenantCommand("drop", "NAME",
		"remove a tenant with all its data, for good. It asks for the name again", dropTenant),
	tenantCommand("migrate", "",
		"upgrade the tables of all tenants; exit with 1 if one fails",
		func(_ *flag.FlagSet, c *call) tenantsAction { return c.migrateTenants }),
}

func listTenants(_ *flag.FlagSet, c *call) tenantsAction {
	return func(ctx context.Context, tenants *svc.Tenants) error {
		return show(c, tenants.List(ctx), "NAME\tNUMBER\tSTATE\tCREATED", ofTenant)
	}
}

func createTenant(_ *flag.FlagSet, c *call) tenantsAction {
	return func(ctx context.Context, tenants *svc.Tenants) error {
		made, err := tenants.Create(ctx, c.operand)
		if err != nil {
			return err
		}
		if c.asJSON {
			return showOne(c, ofTenant(made))
		}
		return c.done(nil, "created tenant %s, number %d", made.Name, made.Number)
	}
}

func dropTenant(flags *flag.FlagSet, c *call) tenantsAction {
	yes := flags.Bool("yes", false, "do not ask")
	drop := changeTenant("dropped", (*svc.Tenants).Drop)(flags, c)
	return func(ctx context.Context, tenants *svc.Tenants) error {
		if _, err := tenants.Get(ctx, c.operand); err != nil {
			return err
		}
		if err := c.confirm(ctx, *yes, c.operand); err != nil {
			return err
		}
		return drop(ctx, tenants)
	}
}

// confirm reads a name from the standard input, which must be the one that is given.
func (c *call) confirm(ctx context.Context, yes bool, name string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(c.stderr, "This removes all data of %s for good. Type its name to go on: ", name)
	line, _ := bufio.NewReader(standardInput(ctx)).ReadString('\n')
	if strings.TrimSpace(line) != name {
		return errors.New("nothing was removed: give the name again, or -yes")
	}
	return nil
}

func (c *call) migrateTenants(ctx context.Context, tenants *svc.Tenants) error {
	total := int64(0)
	for _, err := range tenants.List(ctx) {
		if err != nil {
			return err
		}
		total++
	}
	shown := newProgress(c.stderr, "migrate")
	shown.unit = "tenants"
	var last svc.Migration
	err := tenants.Migrate(ctx, func(m svc.Migration) {
		if m.Err != nil {
			shown.end()
			_ = printLine(c.stderr, "%s: %v", m.Tenant.Name, m.Err)
		}
		shown.report(int64(m.Done), max(total, int64(m.Done)))
		last = m
	})
	shown.end()
	if c.asJSON {
		counts := map[string]int{"tenants": last.Done, "failed": last.Failed}
		return errors.Join(err, showOne(c, counts))
	}
	return errors.Join(err, c.done(nil, "%d tenants, %d failed", last.Done, last.Failed))
}
