package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/sqlstore"
)

// Tenants is a [svc.TenantStore] in a folder: tenants.db has the list of tenants, and 17.db all of
// the tenant with that number. Use [OpenTenants].
//
// A backup of one file is one of one tenant. No tenant waits for the writers of another.
type Tenants struct {
	sqlstore.TenantList
	registry *sqlstore.Registry // the TenantList
	folder   string
	options  Options
	control  *Store
	turns    *sqlstore.FairQueue

	mu   sync.Mutex
	open map[int64][]*Store // by number
}

var _ svc.TenantStore = (*Tenants)(nil)

// OpenTenants opens or creates the tenants in a folder. A new folder has mode 0700. The rules for
// processes and files are those of [Open]. An open tenant takes up to five file descriptors,
// and ten while it is in use.
func OpenTenants(ctx context.Context, folder string, options Options) (*Tenants, error) {
	if folder == "" {
		return nil, errors.New("open the tenants: no folder is named")
	}
	folder, err := absolute(folder)
	if err != nil {
		return nil, fmt.Errorf("open the tenants: %w", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	control, err := Open(ctx, filepath.Join(folder, "tenants.db"), options)
	if err != nil {
		return nil, err
	}
	control.FollowLooks(control.Look)
	registry, err := sqlstore.NewRegistry(ctx, control.Store)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return &Tenants{
		TenantList: registry, registry: registry, folder: folder, options: options,
		control: control, turns: sqlstore.NewFairQueue(tenantWrites),
		open: map[int64][]*Store{},
	}, nil
}

// Path returns the path of a tenant's file, for backups of one tenant. Inside the process nothing
// else may open it.
func (t *Tenants) Path(tenant svc.Tenant) string {
	return filepath.Join(t.folder, strconv.FormatInt(tenant.Number, 10)+".db")
}

// Opened returns the Store of a tenant that is open in this process, as during svc.Tenants.Use: its
// DB is for transactions of the host, with [sqlstore.Tx] and svc.Service.WithTx. Nil: the tenant
// is not open.
func (t *Tenants) Opened(tenant svc.Tenant) *Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stores := t.open[tenant.Number]; len(stores) > 0 {
		return stores[len(stores)-1]
	}
	return nil
}

// CreateTenant implements [svc.TenantStore]. The tenant is on the list when its file is whole. A
// file of that number that is there already stays as it is: the list may come from an old backup.
func (t *Tenants) CreateTenant(
	ctx context.Context, name string, state svc.TenantState, at time.Time,
) (svc.Tenant, error) {
	path, whole := "", false
	tenant, err := t.registry.Create(ctx, name, state, at, func(
		ctx context.Context, _ *sql.Tx, made svc.Tenant,
	) (err error) {
		if path == "" {
			path, err = t.reserve(made.Number)
		}
		if err == nil && !whole { // it may run again
			err = t.build(ctx, made)
			whole = err == nil
		}
		return err
	})
	if err != nil && path != "" {
		err = errors.Join(err, remove(path))
	}
	return tenant, err
}

// build makes the tables of a tenant.
func (t *Tenants) build(ctx context.Context, tenant svc.Tenant) error {
	store := t.prepare(tenant)
	return errors.Join(patiently(ctx, store.Migrate), store.Close())
}

// reserve makes the empty file of a new number, and returns its path.
func (t *Tenants) reserve(number int64) (path string, err error) {
	path = t.Path(svc.Tenant{Number: number})
	for _, file := range files(path) {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return "", errors.Join(err, fmt.Errorf(
				"%s is there, but no tenant has that number: move it away, or try again", file))
		}
	}
	return path, create(path)
}

// files returns the paths of the files of a tenant.
func files(path string) []string {
	return []string{path, path + "-wal", path + "-shm", path + markSuffix}
}

// remove removes the files of a tenant that exist.
func remove(path string) error {
	for _, file := range files(path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

const markSuffix = "-events"

// DropTenant implements [svc.TenantStore]. It removes the files, and then the name. A process that
// has them open can commit nothing more.
func (t *Tenants) DropTenant(ctx context.Context, number int64) error {
	if err := remove(t.Path(svc.Tenant{Number: number})); err != nil {
		return fmt.Errorf("drop a tenant: %w", err)
	}
	return t.registry.Delete(ctx, number, nil)
}

// The connections of a tenant, which may be one of thousands.
const (
	tenantIdle  = 5 * time.Second    // before an unused connection is closed
	tenantCache = "cache_size(-512)" // KiB of pages for each
	// tenantWrites is how many tenants write at the same time: each holds a thread while it waits
	// for the disk.
	tenantWrites = 64
)

// MigrateTenant implements [svc.TenantStore].
func (t *Tenants) MigrateTenant(ctx context.Context, tenant svc.Tenant) error {
	store := t.prepare(tenant)
	return errors.Join(patiently(ctx, store.Upgrade), t.finish(ctx, tenant.Number, store))
}

// prepare returns the Store of a tenant. A file that is missing has been dropped, or was lost: it
// is not made.
func (t *Tenants) prepare(tenant svc.Tenant) *Store {
	store := prepare(t.Path(tenant), t.options, "mode=rw", pragma(tenantCache))
	store.write.SetConnMaxIdleTime(tenantIdle)
	store.read.SetConnMaxIdleTime(tenantIdle)
	store.FollowLooks(store.Look)
	store.claims = &claims{}
	store.TakeTurnsToWrite(t.turns, strconv.FormatInt(tenant.Number, 10))
	return store
}

// OpenTenant implements [svc.TenantStore]. The store is a *[Store].
func (t *Tenants) OpenTenant(
	ctx context.Context, tenant svc.Tenant,
) (svc.Store, func() error, error) {
	store := t.prepare(tenant)
	if err := patiently(ctx, store.Upgrade); err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[tenant.Number] = append(t.open[tenant.Number], store)
	return store, func() error { return t.shut(tenant.Number, store) }, nil
}

// shut closes the Store of a tenant.
func (t *Tenants) shut(number int64, store *Store) error {
	t.mu.Lock()
	left := slices.DeleteFunc(t.open[number], func(s *Store) bool { return s == store })
	if t.open[number] = left; len(left) == 0 {
		delete(t.open, number)
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), busyTimeout)
	defer cancel()
	return t.finish(ctx, number, store)
}

// finish closes a Store, and marks a tenant with events that wait.
func (t *Tenants) finish(ctx context.Context, number int64, store *Store) error {
	waiting, err := store.HasEvents(ctx)
	mark := t.mark(number)
	switch {
	case err != nil: // its file is gone, or the disk fails: Unsettled sees the log that stays
		err = nil
	case waiting:
		err = os.WriteFile(mark, nil, 0o600)
	default:
		if err = os.Remove(mark); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, store.Close())
}

// mark returns the path of a file that is there while events of a tenant wait that nobody has open.
func (t *Tenants) mark(number int64) string {
	return t.Path(svc.Tenant{Number: number}) + markSuffix
}

// Outbox implements [svc.TenantStore]: each tenant has its own.
func (t *Tenants) Outbox() svc.OutboxStore { return nil }

// Unsettled implements [svc.TenantStore]: it finds the files that were not closed, or are open, and
// those that were closed while events waited.
func (t *Tenants) Unsettled(ctx context.Context) (names []string, err error) {
	entries, err := os.ReadDir(t.folder)
	if err != nil {
		return nil, err
	}
	unsettled := map[string]bool{}
	for _, entry := range entries {
		number, rest, _ := strings.Cut(entry.Name(), ".")
		if number != "tenants" && (rest == "db-wal" || rest == "db"+markSuffix) {
			unsettled[number] = true
		}
	}
	const chunk = 1000
	for after := ""; len(unsettled) > 0; {
		list, err := t.Tenants(ctx, after, chunk)
		if err != nil {
			return nil, err
		}
		for _, tenant := range list {
			if after = tenant.Name; unsettled[strconv.FormatInt(tenant.Number, 10)] {
				names = append(names, tenant.Name)
			}
		}
		if len(list) == 0 {
			break
		}
	}
	return names, nil
}

// Close closes the list. Close the svc.Tenants before, which closes the tenants.
func (t *Tenants) Close() error { return t.control.Close() }

// claims remembers that the outbox has no free events.
type claims struct {
	mu    sync.Mutex
	look  uint64    // the look before
	until time.Time // others may have claimed some; zero: nothing is remembered
}

// claimsTrust is how long claims holds: an event that another process has claimed becomes free.
const claimsTrust = 30 * time.Second

// ClaimEvents implements [svc.OutboxStore]. The file of a tenant is not read while nothing is
// committed.
func (s *Store) ClaimEvents(
	ctx context.Context, now, until time.Time, limit int,
) ([]svc.Event, error) {
	if s.claims == nil {
		return s.Store.ClaimEvents(ctx, now, until, limit)
	}
	look, err := s.Look(ctx)
	if err == nil && s.claims.none(look) {
		return nil, nil
	}
	events, failed := s.Store.ClaimEvents(ctx, now, until, limit)
	if err == nil && failed == nil && len(events) == 0 {
		s.claims.remember(look)
	}
	return events, failed
}

func (c *claims) none(look uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return look == c.look && time.Now().Before(c.until)
}

func (c *claims) remember(look uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look, c.until = look, time.Now().Add(claimsTrust)
}
