package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// Tenants is a [svc.TenantStore] in one database: each tenant has its own schema. Use
// [OpenTenants] or [NewTenants].
//
// All tenants share the connections, which go round among those that wait for one, one connection
// that listens, and one poll. The first schema of the search path has the list of tenants and the
// outbox of all, besides the tables of a Store.
type Tenants struct {
	sqlstore.TenantList
	registry *sqlstore.Registry // the TenantList
	control  *Store
	poll     *sqlstore.Poll
	turns    *sqlstore.FairQueue
	channel  string // where all notify; "": they do not
}

var _ svc.TenantStore = (*Tenants)(nil)

const (
	// tenantsMaxOpen is the default of Options.MaxOpen for tenants: with the one that listens, 10.
	tenantsMaxOpen = 9
	// tenantsLifetime ends connections: PostgreSQL keeps some 50 kB in a connection for each tenant
	// that ever used it.
	tenantsLifetime = 15 * time.Minute
)

// OpenTenants connects to the database at url, as [Open] does, and creates or upgrades the tables
// of the list of tenants. The tables of a tenant are upgraded when it is opened.
//
// The role needs the right CREATE on the database. Of the options, MaxOpen 0 means 9: with the
// connection that listens, all tenants together use 10.
func OpenTenants(ctx context.Context, url string, options Options) (t *Tenants, err error) {
	config, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL database: %w", err)
	}
	defer nameDatabase(&err, "open ", config)
	options.MaxOpen = cmp.Or(options.MaxOpen, tenantsMaxOpen)
	db, dialect, err := options.connect(ctx, config)
	if err != nil {
		return nil, err
	}
	db.SetConnMaxLifetime(tenantsLifetime)
	return options.tenants(ctx, db, dialect, connectTo(config), options.MaxOpen)
}

// NewTenants is [OpenTenants] over a pool of the host, as [New] is [Open]. PostgreSQL keeps some 50
// kB in a connection for each tenant that ever used it: limit the lifetime of
// the pool's connections.
func NewTenants(ctx context.Context, pool *pgxpool.Pool, options Options) (*Tenants, error) {
	if pool == nil {
		return nil, errors.New("use a pool of PostgreSQL: the pool is nil")
	}
	config := pool.Config()
	db, dialect, err := options.prepare(ctx, pool, config)
	if err != nil {
		nameDatabase(&err, "use a pool of ", config.ConnConfig)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout) // the host may hold all connections
	defer cancel()
	return options.tenants(ctx, db, dialect, listenAs(config), int(config.MaxConns))
}

// untaken is how many connections stay free for calls that take no turn: questions about the list,
// and the followers.
const untaken = 2

// tenants returns Tenants that use db, or closes db. The pool has so many connections.
func (o Options) tenants(
	ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, dial connect, connections int,
) (*Tenants, error) {
	control, err := o.deaf(ctx, db, dialect)
	if err != nil {
		return nil, err
	}
	t := &Tenants{control: control, turns: sqlstore.NewFairQueue(connections - untaken)}
	if t.registry, err = sqlstore.NewRegistry(ctx, control.Store); err == nil {
		err = t.checkSchema()
	}
	if err == nil && !o.NoNotify {
		err = db.QueryRowContext(ctx, dialect.Qualify(selectChannel)).Scan(&t.channel)
	}
	if err != nil {
		return nil, errors.Join(reason(err), db.Close())
	}
	t.TenantList = t.registry
	t.poll = sqlstore.NewPoll(t.registry)
	if o.listens() {
		control.listener = newListener(dial, db, dialect, t.poll).start()
	}
	return t, nil
}

// Schema returns the name of the schema with the tables of a tenant: svc_t17, when the list of
// tenants is in the schema public, and otherwise the schema of the list with _t17 behind it.
func (t *Tenants) Schema(tenant svc.Tenant) string {
	before := t.control.dialect.Schema
	if before == "public" {
		before = "svc"
	}
	return before + "_t" + strconv.FormatInt(tenant.Number, 10)
}

// checkSchema refuses a schema whose tenants would have names that PostgreSQL cuts off.
func (t *Tenants) checkSchema() error {
	const most = 63 - len("_t9223372036854775807")
	schema := t.control.dialect.Schema
	if len(schema) > most {
		return fmt.Errorf("the schema %q, which is the first of the search path, has a longer name"+
			" than %d bytes: use another one", schema, most)
	}
	return nil
}

// Dialect returns the dialect for the tables of a tenant: for [sqlstore.Tx] in a transaction of the
// host, with svc.Service.WithTx.
func (t *Tenants) Dialect(tenant svc.Tenant) sqlstore.Dialect {
	d := t.control.dialect
	registry := d.Schema
	d.Schema = t.Schema(tenant)
	d.Tenant = &sqlstore.TenantDialect{
		Name: tenant.Name, Number: tenant.Number, Control: registry,
	}
	if d.Notify = ""; t.channel != "" {
		// The table tells apart a copy of the list in the same database.
		const notify = `SELECT pg_notify('%s', '%s.svc_generation'::regclass::oid || '/%d')`
		d.Notify = fmt.Sprintf(notify, t.channel, literal(registry), tenant.Number)
	}
	d.Classify = classifyTenant
	return d
}

// literal quotes a schema for a name in a literal.
func literal(schema string) string {
	return strings.ReplaceAll(pgx.Identifier{schema}.Sanitize(), "'", "''")
}

// classifyTenant adds that the schema of a tenant may be gone: another process has dropped it.
func classifyTenant(err error) error {
	if hasState(err, undefinedTable, undefinedSchema) {
		return svc.ErrUnavailable
	}
	return classify(err)
}

const undefinedTable, undefinedSchema, duplicateSchema = "42P01", "3F000", "42P06"

// Tx returns a Store that works inside tx, a transaction of the host, on the tables of a tenant. It
// is [Tx] for one tenant.
func (t *Tenants) Tx(tx PgxTx, tenant svc.Tenant) svc.FullStore {
	return sqlstore.TxOf(transactionOf{tx}, t.Dialect(tenant))
}

// DB returns the pool, as [Store.DB] does.
func (t *Tenants) DB() *sql.DB { return t.control.db }

// CreateTenant implements [svc.TenantStore], in one transaction. A schema of that number that is
// there already stays as it is: the list may come from an old backup.
func (t *Tenants) CreateTenant(
	ctx context.Context, name string, state svc.TenantState, at time.Time,
) (svc.Tenant, error) {
	return t.registry.Create(ctx, name, state, at, func(
		ctx context.Context, tx *sql.Tx, made svc.Tenant,
	) error {
		script := strings.Replace(sqlstore.SQL(t.Dialect(made)), " IF NOT EXISTS", "", 1)
		_, err := tx.ExecContext(ctx, script, pgx.QueryExecModeSimpleProtocol) // in one trip
		if hasState(err, duplicateSchema) {
			return fmt.Errorf("no tenant has the number of the schema %s: "+
				"rename it, or try again: %w", t.Schema(made), err)
		}
		return err
	})
}

// DropTenant implements [svc.TenantStore], in one transaction.
func (t *Tenants) DropTenant(ctx context.Context, number int64) error {
	return t.registry.Delete(ctx, number, func(ctx context.Context, tx *sql.Tx) error {
		schema := t.Schema(svc.Tenant{Number: number})
		quoted := pgx.Identifier{schema}.Sanitize()
		_, err := tx.ExecContext(ctx, `DROP SCHEMA IF EXISTS `+quoted+` CASCADE`)
		return err
	})
}

// MigrateTenant implements [svc.TenantStore]. An up-to-date one costs one query.
func (t *Tenants) MigrateTenant(ctx context.Context, tenant svc.Tenant) error {
	return t.control.Sharing(t.Dialect(tenant)).Upgrade(ctx)
}

// OpenTenant implements [svc.TenantStore]. The store is a *[Store].
func (t *Tenants) OpenTenant(
	ctx context.Context, tenant svc.Tenant,
) (svc.Store, func() error, error) {
	store := t.control.Sharing(t.Dialect(tenant))
	store.TakeTurns(t.turns, t.Schema(tenant))
	if err := store.Upgrade(ctx); err != nil {
		return nil, nil, err
	}
	t.poll.Add(tenant.Number, store)
	end := func() error {
		t.poll.Remove(tenant.Number, store)
		return nil
	}
	return &Store{
		Store: store, db: t.control.db, dialect: t.Dialect(tenant),
		shared: true, exact: t.control.exact,
	}, end, nil
}

// Outbox implements [svc.TenantStore]: all tenants share that of the list.
func (t *Tenants) Outbox() svc.OutboxStore { return t.control }

// Unsettled implements [svc.TenantStore].
func (t *Tenants) Unsettled(context.Context) ([]string, error) { return nil, nil }

// Close ends the poll and the listener and closes the connections. Close the svc.Tenants before.
func (t *Tenants) Close() error {
	t.poll.Close()
	return t.control.Close()
}
