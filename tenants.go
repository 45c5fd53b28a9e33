package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/changefeed"
	"github.com/extsvc/svc/internal/defaultlog"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/lists"
	"github.com/extsvc/svc/internal/semaphore"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/limits"
	"github.com/extsvc/svc/parameter"
)

// Tenant is one customer of a host, with its own [Service].
type Tenant struct {
	Name string // 1 to [limits.IDLength] printable characters without slashes; not "." or ".."
	// Number names what the tenant has in the database. No other tenant ever has it, not even a
	// later one with the same Name.
	Number    int64
	State     TenantState
	CreatedAt time.Time // UTC, microseconds
}

// TenantState says whether a tenant is served.
type TenantState string

// The states of a tenant.
const (
	TenantActive    TenantState = "active"
	TenantSuspended TenantState = "suspended" // not served, until [Tenants.Resume]
	TenantDropping  TenantState = "dropping"  // not served; [Tenants.Drop] has begun and not ended
)

// TenantStore keeps the list of tenants, and a Store for each. Packages store/postgres and
// store/sqlite have one. The rules of [Store] hold for its methods. Those of [ChangeStore] are
// about the list: each mutation has one target of the kind [event.TargetTenant].
type TenantStore interface {
	ChangeStore
	// CreateTenant adds a tenant, active or suspended, and makes its tables. ErrExists when the
	// name is taken.
	CreateTenant(ctx context.Context, name string, state TenantState, at time.Time) (Tenant, error)
	// Tenant returns the tenant of that name. ErrNotFound.
	Tenant(ctx context.Context, name string) (Tenant, error)
	// Tenants returns up to limit tenants with names after one, by name in byte order.
	Tenants(ctx context.Context, after string, limit int) ([]Tenant, error)
	// ChangeTenant sets the state of the tenant with that number. ErrNotFound.
	ChangeTenant(ctx context.Context, number int64, state TenantState) error
	// DropTenant removes all data of the tenant with that number, and then its name. ErrNotFound.
	DropTenant(ctx context.Context, number int64) error
	// MigrateTenant upgrades the tables of a tenant. Errors: as OpenTenant.
	MigrateTenant(ctx context.Context, tenant Tenant) error
	// OpenTenant returns the Store of a tenant in any state, after MigrateTenant. The caller closes
	// the Store. A tenant that was dropped, or whose data is missing, is ErrNotFound or
	// ErrUnavailable: OpenTenant makes no data.
	OpenTenant(ctx context.Context, tenant Tenant) (store Store, close func() error, err error)
	// Outbox keeps the events of transactions for all tenants. Nil: the Store of each tenant keeps
	// its own.
	Outbox() OutboxStore
	// Unsettled returns the names of tenants whose own outbox may hold events that no process
	// delivers, because a process has crashed. Nil when the tenants share an outbox.
	Unsettled(ctx context.Context) ([]string, error)
}

// TenantsConfig configures [Tenants]. Store is required; the zero value of every other field works.
type TenantsConfig struct {
	// Store keeps the tenants. Required.
	Store  TenantStore
	Config Config // of each tenant's Service, without a Store; log records name the tenant
	// Each changes the Config of one tenant before its Service is made: its Authenticator, for
	// example. Its error keeps the tenant closed. It must not set OnEvent (that of Config gets the
	// events of all tenants, which name theirs) or Store. OpenAPI documents have the Parameters of
	// Config alone. It must be safe for concurrent use. Nil: all tenants have the same Config.
	Each     func(tenant Tenant, config *Config) error
	IdleTime time.Duration // how long an unused tenant stays open; 0: 30 seconds; not negative
	MaxOpen  int           // how many tenants not in use stay open; 0: 1,000; not negative
	// Memory is the most bytes that the caches of all tenants hold together, by their own
	// estimates. Each tenant has the limits of Config as well. When all hold more, the tenants that
	// were not used for longest give theirs back, within a second. 0: 512 MiB. Not negative.
	Memory int64
}

// of returns the Config of a tenant, without its Store.
func (c *TenantsConfig) of(tenant Tenant, log *slog.Logger) (Config, error) {
	config := c.Config.clone()
	config.Logger = log.With("tenant", tenant.Name)
	if c.Each == nil {
		return config, nil
	}
	config.Events.OnEvent, config.Store = nil, nil
	err := background.Call(func() error { return c.Each(tenant, &config) })
	if config.Events.OnEvent != nil || config.Store != nil {
		err = cmp.Or(err, errors.New("svc: TenantsConfig.Each must not set OnEvent or Store"))
	}
	config.Events.OnEvent = c.Config.Events.OnEvent
	return config, err
}

// TenantGrace is how long calls may go on after their tenant is suspended or dropped. Then their
// contexts end ([Tenants.UseContext]), and their Service accepts nobody and writes nothing.
const TenantGrace = 5 * time.Second

const (
	tenantCancelled = time.Second // how long calls may take to end when their contexts have ended

	tenantIdleTime = 30 * time.Second
	tenantMaxOpen  = 1000
	tenantMemory   = 512 << 20

	tenantsAtOnce    = 4               // tenants that open at the same time
	migrationsAtOnce = 3               // of Migrate
	tenantPatience   = 4 * time.Second // how long a call waits until its tenant can be opened
	tenantTick       = time.Second     // between two looks for idle tenants
	tenantFailure    = time.Second     // how long a tenant that could not be opened answers so
	tenantOpening    = time.Minute     // the longest time to open a tenant, with its migrations
	tenantsInChunk   = 500             // tenants of the list that are read at a time
)

// Tenants are Services for many tenants in one database, each as if there were no other. A tenant is
// opened when it is first used, and closed when it is idle. Use [NewTenants]. Tenants is for the
// host's own code: its methods authorize nobody. They log each change of the list and report no
// event. All methods are safe for concurrent use, and can return CodeUnavailable and the error of
// ctx.
type Tenants struct {
	config   TenantsConfig
	log      *slog.Logger
	work     *background.Group
	journal  *committer // of the outbox that all tenants share; it has none when each has its own
	keys     *keyring.Ring
	slots    semaphore.Semaphore // one for each tenant that is being opened
	analyses *fairqueue.Queue
	ticks    atomic.Int64 // counts the looks for idle tenants: a clock that costs nothing to read

	mu      sync.RWMutex
	open    map[string]*tenantService // by name
	leaving map[*tenantService]bool   // that end with their running calls
}

// NewTenants returns Tenants over config, or an error that names the missing or wrong field. It
// does not contact the store. The Tenants work in the background until [Tenants.Close].
func NewTenants(config TenantsConfig) (*Tenants, error) {
	switch {
	case config.Store == nil:
		return nil, errors.New("svc: TenantsConfig.Store is required")
	case config.Config.Store != nil:
		return nil, errors.New("svc: TenantsConfig.Config.Store must be nil: each tenant has" +
			" its own")
	case config.IdleTime < 0 || config.MaxOpen < 0 || config.Memory < 0:
		return nil, errors.New("svc: TenantsConfig.IdleTime, MaxOpen and Memory must not be" +
			" negative")
	}
	ring, badKeys := newRing(config.Config.Keys)
	_, badSources := newSealer(config.Config.Sources)
	_, badParameters := schemaOf(config.Config.Parameters)
	if err := cmp.Or(config.Config.check(), badKeys, badSources, badParameters); err != nil {
		return nil, err
	}
	config.Config = config.Config.clone()
	config.IdleTime = cmp.Or(config.IdleTime, tenantIdleTime)
	config.MaxOpen = cmp.Or(config.MaxOpen, tenantMaxOpen)
	config.Memory = cmp.Or(config.Memory, tenantMemory)
	log := defaultlog.Masked(config.Config.Logger, ring.Mask)
	if config.Config.Keys.unpeppered() {
		log.Warn(noPepper)
	}
	if config.Config.Now == nil {
		config.Config.Now = time.Now
	}
	b := &base{
		roles: roles{outbox: config.Store.Outbox()}, log: log, clock: config.Config.Now,
	}
	t := &Tenants{
		config: config, log: log, work: background.NewGroup(log), keys: ring,
		journal: &committer{base: b, onEvent: config.Config.Events.OnEvent},
		slots:   make(semaphore.Semaphore, tenantsAtOnce), analyses: fairqueue.OfProcessors(),
		open: map[string]*tenantService{}, leaving: map[*tenantService]bool{},
	}
	t.work.Start(t.follow)
	t.work.Start(t.tidy)
	switch {
	case config.Config.Events.OnEvent == nil, config.Config.Events.NoDelivery,
		config.Config.ReadOnly:
	case b.roles.outbox != nil:
		t.work.Start(t.journal.delivery().Run)
	default:
		t.work.Start(t.settle)
	}
	return t, nil
}

// Parameters returns the parameters of each tenant's Service. The caller owns them.
func (t *Tenants) Parameters() []parameter.Definition {
	schema, _ := schemaOf(t.config.Config.Parameters) // NewTenants has checked them
	return schema.Parameters()
}

// settle opens the tenants whose events a crashed process has left behind: each delivers its own.
func (t *Tenants) settle(ctx context.Context) {
	names, err := t.config.Store.Unsettled(ctx)
	for _, name := range names {
		failed := t.Use(ctx, name, func(*Service) error { return nil })
		if ErrorCode(failed) != CodeNotFound { // it is suspended
			err = cmp.Or(err, failed)
		}
	}
	if err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "svc: cannot deliver the events that a crash has left", "error", err)
	}
}

// Create makes a tenant. Errors: CodeInvalid (name); CodeExists when the name is taken, also by a
// tenant that is suspended or being dropped.
func (t *Tenants) Create(ctx context.Context, name string) (Tenant, error) {
	var c checker
	c.id("name", name)
	if err := c.err(); err != nil {
		return Tenant{}, err
	}
	tenant, err := t.config.Store.CreateTenant(ctx, name, TenantActive, t.journal.now())
	if rowExists(err) {
		return Tenant{}, &Error{Code: CodeExists, Message: "there is a tenant of that name already"}
	} else if err != nil {
		return Tenant{}, fault("create a tenant", err)
	}
	t.log.InfoContext(ctx, "svc: tenant created", "tenant", name, "number", tenant.Number)
	return tenant, nil
}

// Get returns the tenant of that name. Errors: CodeNotFound.
func (t *Tenants) Get(ctx context.Context, name string) (Tenant, error) {
	if text.IDProblem(name, limits.IDLength) != "" {
		return Tenant{}, noTenant()
	}
	tenant, err := t.config.Store.Tenant(ctx, name)
	if noRow(err) {
		return Tenant{}, noTenant()
	}
	return tenant, fault("read a tenant", err)
}

// noTenant is the answer about a tenant that does not exist or is not served.
func noTenant() *Error { return notFound("there is no such tenant") }

// Ping is [Service.Ping] for the list of tenants. It opens no tenant.
func (t *Tenants) Ping(ctx context.Context) error {
	_, err := t.config.Store.Changes(ctx, math.MaxInt64)
	return fault("reach the store", err)
}

// Mask is [Keys.Mask], by the Config of all tenants.
func (t *Tenants) Mask(text string) string { return t.keys.Mask(text) }

// List lists all tenants by name in byte order, 500 at a time: tenants that come or go during the
// loop may be missing. An error is yielded once, last.
func (t *Tenants) List(ctx context.Context) iter.Seq2[Tenant, error] {
	return lists.Chunks(ctx, "", tenantsInChunk, doing("list tenants"), nil,
		func(after string) ([]Tenant, error) {
			return t.config.Store.Tenants(ctx, after, tenantsInChunk)
		},
		func(after *string, last Tenant) { *after = last.Name })
}

// Suspend ends the service of a tenant: new calls of Use fail as if it did not exist. Running calls
// write nothing any longer, except those of [Host], and their contexts end after [TenantGrace].
// Suspend returns when the calls of this process have ended, or a second after that. Other
// processes follow within about a second. A call from inside a call of Use of the same tenant waits
// for itself, for that long. Errors: CodeNotFound, also for a tenant that is being dropped.
func (t *Tenants) Suspend(ctx context.Context, name string) error {
	return t.change(ctx, name, TenantSuspended)
}

// Resume serves a suspended tenant again. Errors: as Suspend.
func (t *Tenants) Resume(ctx context.Context, name string) error {
	return t.change(ctx, name, TenantActive)
}

func (t *Tenants) change(ctx context.Context, name string, state TenantState) error {
	tenant, err := t.Get(ctx, name)
	switch {
	case err != nil:
		return err
	case tenant.State == TenantDropping:
		return noTenant()
	}
	if err := t.set(ctx, tenant, state); err != nil {
		return err
	}
	if state == TenantActive {
		return nil
	}
	return t.retire(ctx, tenant)
}

func (t *Tenants) set(ctx context.Context, tenant Tenant, state TenantState) error {
	err := t.config.Store.ChangeTenant(ctx, tenant.Number, state)
	if noRow(err) {
		return noTenant()
	} else if err != nil {
		return fault("change a tenant", err)
	}
	t.log.InfoContext(ctx, "svc: tenant changed", "tenant", tenant.Name, "state", state)
	return nil
}

// Drop removes a tenant with all its data, for good. New calls of Use fail immediately, as if the
// tenant did not exist. Drop waits for the calls of this process as [Tenants.Suspend] does, and for
// a second, in which other processes learn of it. Calls that take longer may fail. In a store whose
// tenants have an outbox each, as in store/sqlite, the events of transactions go with the rest,
// unless they are delivered within some 5 seconds.
//
// When Drop fails after its beginning, the tenant stays in the state dropping: call Drop again. The
// name is free when Drop has returned nil. Errors: CodeNotFound.
func (t *Tenants) Drop(ctx context.Context, name string) error {
	tenant, err := t.Get(ctx, name)
	if err != nil {
		return err
	}
	if tenant.State != TenantDropping {
		if err := t.set(ctx, tenant, TenantDropping); err != nil {
			return err
		}
	}
	if err := t.retire(ctx, tenant); err != nil {
		return err
	}
	background.Wait(ctx, time.After(tenantTick))
	err = t.config.Store.DropTenant(ctx, tenant.Number)
	if noRow(err) {
		return nil // another call was faster
	} else if err != nil {
		return fault("drop a tenant", err)
	}
	t.log.InfoContext(ctx, "svc: tenant dropped", "tenant", name, "number", tenant.Number)
	return nil
}

// Migration is how far [Tenants.Migrate] has come.
type Migration struct {
	Tenant Tenant // the one that was migrated last
	Err    error  // why it could not be
	Done   int    // how many tenants were tried
	Failed int    // how many of them failed
}

// Migrate makes or upgrades the tables of all tenants, some at a time. Without it, each tenant is
// migrated when it is opened. It calls progress, unless nil, after each tenant, one call at a time.
// A tenant that fails stops no other. A tenant that is up to date costs one query, so a call after
// an interruption goes on where the other has stopped. It returns the first error of a tenant, or
// the error that ended it early.
func (t *Tenants) Migrate(ctx context.Context, progress func(Migration)) error {
	var mu sync.Mutex
	var m Migration
	var first error
	tried := func(tenant Tenant, err error) {
		mu.Lock()
		defer mu.Unlock()
		m.Tenant, m.Err, m.Done = tenant, err, m.Done+1
		if err != nil {
			m.Failed++
			first = cmp.Or(first, error(&Error{
				Code:    CodeUnavailable,
				Message: fmt.Sprintf("tenant %q is not upgraded", tenant.Name),
				Err:     err,
			}))
		}
		if progress != nil {
			progress(m)
		}
	}
	var chunk []Tenant
	flush := func() error {
		defer func() { chunk = chunk[:0] }()
		migrate := func(ctx context.Context, i int) error {
			err := t.config.Store.MigrateTenant(ctx, chunk[i])
			if err != nil && t.dropped(ctx, chunk[i]) {
				return nil
			}
			tried(chunk[i], err)
			return ctx.Err()
		}
		return background.ForEach(ctx, len(chunk), migrationsAtOnce, migrate)
	}
	for tenant, err := range t.List(ctx) {
		switch {
		case err != nil:
			return err
		case tenant.State == TenantDropping:
			continue
		}
		if chunk = append(chunk, tenant); len(chunk) == tenantsInChunk {
			if err := flush(); err != nil {
				return fault("migrate the tenants", err)
			}
		}
	}
	if err := flush(); err != nil {
		return fault("migrate the tenants", err)
	}
	return first
}

// dropped reports whether a tenant that was in the list is dropped, or about to be.
func (t *Tenants) dropped(ctx context.Context, tenant Tenant) bool {
	now, err := t.config.Store.Tenant(ctx, tenant.Name)
	return noRow(err) ||
		err == nil && (now.Number != tenant.Number || now.State == TenantDropping)
}

// follow ends the service of tenants that any process has suspended or dropped.
func (t *Tenants) follow(ctx context.Context) {
	since := int64(-1) // every tenant may have changed
	for ctx.Err() == nil {
		asking, _ := changefeed.With(ctx)
		changes, err := t.config.Store.Changes(asking, since)
		if err == nil {
			err = t.apply(ctx, changes)
		}
		if err == nil {
			since = changes.Generation
			err = t.config.Store.AwaitChange(ctx, since)
		}
		if err != nil && !background.Wait(ctx, time.After(tenantTick)) {
			return
		}
	}
}

// apply looks at the tenants that have changed and are open.
func (t *Tenants) apply(ctx context.Context, changes StoreChanges) error {
	for _, s := range t.all() {
		target := Target{Kind: event.TargetTenant, ID: s.name}
		if !changes.Reset && !slices.Contains(changes.Targets, target) {
			continue
		}
		s.doubted.Store(true)
		select {
		case <-s.ready:
		default:
			continue // fill confirms it
		}
		if err := t.confirm(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the service of all tenants. It returns when the running calls of Use have ended, the
// last uses of keys are recorded, and the background work has ended. The host closes the store
// after the Tenants. A second call does nothing. The error is always nil.
func (t *Tenants) Close() error {
	t.work.End()
	all := t.all()
	for _, s := range all {
		t.leave(s)
	}
	for _, s := range all {
		<-s.ended
	}
	return nil
}

// refusesIn is refuses in a transaction of the host, which must not be of another tenant.
func (s *Service) refusesIn(store Store) func(byHost bool) error {
	in, knows := store.(interface{ TenantNumber() int64 })
	if !knows || in.TenantNumber() == 0 || in.TenantNumber() == s.Tenant().Number {
		return s.refuses
	}
	return func(bool) error {
		return fault("use the transaction", errors.New("it is in the tables of another tenant"))
	}
}
