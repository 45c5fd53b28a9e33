package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/outbox"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/limits"
)

// tenantService is a tenant that is open, or is being opened or closed.
type tenantService struct {
	name string
	// users counts the calls that use service. The one that sets it from 0 to closing closes it.
	users   atomic.Int64
	used    atomic.Int64  // the tick of the last use
	retired atomic.Bool   // no new use
	doubted atomic.Bool   // its row has changed while it was being opened
	expels  atomic.Bool   // it is suspended or dropped: its callers write nothing any longer
	ready   chan struct{} // closed when service or err is set
	ended   chan struct{} // closed when the tenant is closed

	life  context.Context // ends [TenantGrace] after the tenant is suspended or dropped
	endIt context.CancelFunc

	Tenant   // and the rest: set before ready is closed
	service  *Service
	delivers *background.Group // delivers the outbox of the tenant; nil: none, or the Tenants do
	close    func() error
	err      error
}

const closing = -1 << 40 // of users: far below 0, however many calls come

// Use calls do with the Service of a tenant, and opens the tenant first when it is closed. It
// returns the error of do. The Service is good until do returns: do not keep or close it, and end a
// transaction of the host before. When the tenant is suspended or dropped in the meantime, callers
// other than Host write nothing any longer (CodeNotFound), and after [TenantGrace] nobody does. The
// warm way costs some nanoseconds and allocates nothing.
//
// Its own errors: CodeNotFound when no such tenant is served, also for a name that no tenant can
// have; CodeUnavailable when the tenant cannot be opened at present, or its migration has failed.
func (t *Tenants) Use(ctx context.Context, name string, do func(*Service) error) error {
	s, err := t.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer t.release(s)
	return do(s.service)
}

// UseContext is Use with a context that also ends [TenantGrace] after a suspension or drop.
func (t *Tenants) UseContext(
	ctx context.Context, name string, do func(ctx context.Context, s *Service) error,
) error {
	s, err := t.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer t.release(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	return do(ctx, s.service)
}

// refuses refuses a caller of a tenant that is suspended or dropped: any but the host immediately,
// and the host when the life of the Service has ended.
func (s *tenantService) refuses(host bool) error {
	if s.expels.Load() && (!host || s.life.Err() != nil) {
		return noTenant()
	}
	return nil
}

// acquire counts a use of a tenant, which release ends.
func (t *Tenants) acquire(ctx context.Context, name string) (*tenantService, error) {
	for {
		s, begun := t.find(name), false
		if s == nil {
			var err error
			if s, begun, err = t.begin(ctx, name); err != nil {
				return nil, err
			}
		}
		if s.users.Add(1) <= 0 {
			continue // it is being closed, and no longer in the list
		}
		err := s.await(ctx)
		switch {
		case err != nil:
		case s.err == nil && !s.retired.Load():
			if tick := t.ticks.Load(); s.used.Load() != tick {
				s.used.Store(tick)
			}
			return s, nil
		case begun || ErrorCode(s.err) != CodeNotFound:
			err = s.err
		}
		// Nil: it has ended, or it was not there when an earlier call asked. Look again.
		if t.release(s); err != nil {
			return nil, err
		}
	}
}

// await waits until a tenant is open, or cannot be opened.
func (s *tenantService) await(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
	}
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return fault("open a tenant", ctx.Err())
	}
}

func (t *Tenants) release(s *tenantService) {
	if s.users.Add(-1) == 0 && s.retired.Load() {
		t.end(s)
	}
}

// begin opens a tenant in the background, so that no caller interrupts others that wait for it. It
// returns the tenant, or the one that another call has begun in the meantime.
func (t *Tenants) begin(
	ctx context.Context, name string,
) (s *tenantService, begun bool, err error) {
	if text.IDProblem(name, limits.IDLength) != "" {
		return nil, false, noTenant()
	}
	late := unavailableTenant(errors.New("others have been opening for too long"))
	release, err := t.slots.AcquireWithin(ctx, tenantPatience, late)
	if err != nil {
		return nil, false, fault("open a tenant", err)
	}
	s = &tenantService{name: name, ready: make(chan struct{}), ended: make(chan struct{})}
	s.life, s.endIt = context.WithCancel(context.Background())
	s.users.Store(1)
	if other := t.add(s); other != nil {
		release()
		return other, false, nil
	}
	if !t.work.Start(func(ctx context.Context) { t.fill(ctx, s, release) }) {
		release()
		t.fail(s, unavailableTenant(errors.New("the Tenants are closed")))
		return nil, false, s.err
	}
	return s, true, nil
}

// fill opens a tenant, and then releases its slot.
func (t *Tenants) fill(ctx context.Context, s *tenantService, release func()) {
	service, err := t.openService(ctx, s)
	if err != nil && s.close != nil {
		err = errors.Join(err, s.closeBoth())
	}
	release()
	switch s.service = service; {
	case ErrorCode(err) == CodeNotFound:
		t.fail(s, err)
	case err != nil:
		t.log.ErrorContext(ctx, "svc: cannot open a tenant", "tenant", s.name, "error", err)
		s.err = err
		close(s.ready)
		background.Wait(ctx, time.After(tenantFailure)) // no storm of attempts
		t.forget(s)
	default:
		service.refuses = s.refuses
		s.used.Store(t.ticks.Load())
		t.startDelivery(s)
		close(s.ready)
		for s.doubted.Load() && t.confirm(ctx, s) != nil && background.Wait(ctx, time.After(tenantTick)) {
		}
		t.release(s)
	}
}

// fail ends an opening that nobody shall see: the next call opens the tenant again.
func (t *Tenants) fail(s *tenantService, err error) {
	s.err = err
	t.forget(s)
	close(s.ready)
}

// forget takes a tenant that has ended out of the lists.
func (t *Tenants) forget(s *tenantService) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[s.name] == s {
		delete(t.open, s.name)
	}
	delete(t.leaving, s)
	s.endIt()
	close(s.ended)
}

func (t *Tenants) openService(
	ctx context.Context, s *tenantService,
) (service *Service, err error) {
	ctx, cancel := context.WithTimeout(ctx, tenantOpening)
	defer cancel()
	defer recovered("open a tenant", &err)
	tenant, err := t.Get(ctx, s.name)
	switch {
	case ctx.Err() != nil:
		return nil, unavailableTenant(cmp.Or(err, ctx.Err()))
	case err != nil:
		return nil, err
	case tenant.State != TenantActive:
		return nil, noTenant()
	}
	s.Tenant = tenant
	config, err := t.config.of(tenant, t.log)
	if err != nil {
		return nil, unavailableTenant(err)
	}
	store, end, err := t.config.Store.OpenTenant(ctx, tenant)
	if err == nil {
		config.Store, s.close = store, end
		service, err = newService(config, tenant, t.analyses)
	}
	if err != nil {
		return nil, unavailableTenant(err)
	}
	return service, nil
}

// unavailableTenant is the error of a tenant that exists and cannot be opened. The others go on.
func unavailableTenant(err error) error {
	const message = "the tenant cannot be opened at present"
	return &Error{Code: CodeUnavailable, Message: message, Err: err}
}

// startDelivery begins to deliver the events of a tenant that has its own outbox.
func (t *Tenants) startDelivery(s *tenantService) {
	journal := s.service.Templates.committer
	if !s.service.config.Events.NoDelivery && !s.service.readOnly &&
		t.config.Store.Outbox() == nil &&
		journal.onEvent != nil && journal.roles.outbox != nil {
		s.delivers = background.NewGroup(t.log)
		s.delivers.Start(journal.delivery().Run)
	}
}

// endDelivery delivers the rest of the events, as far as time allows. A function of the
// host may use the tenant in the meantime.
func (t *Tenants) endDelivery(s *tenantService) {
	if s.delivers == nil {
		return
	}
	s.delivers.End()
	s.delivers = nil
	ctx, cancel := context.WithTimeout(context.Background(), outbox.DeleteTimeout)
	defer cancel()
	rest := s.service.Templates.committer.delivery()
	if err := rest.Once(ctx); err != nil {
		rest.Report(ctx, err)
	}
}

// retire ends the service of a tenant in this process: no new use begins, and retire returns when
// the running ones have ended, or when the life of the Service is over.
func (t *Tenants) retire(ctx context.Context, tenant Tenant) error {
	for _, s := range t.all() {
		if s.name != tenant.Name {
			continue
		}
		if err := s.await(ctx); err != nil {
			return err
		}
		if s.err != nil || s.Number != tenant.Number {
			continue
		}
		t.expel(s)
		select {
		case <-s.ended:
		case <-ctx.Done():
			return fault("end the use of a tenant", ctx.Err())
		case <-time.After(TenantGrace + tenantCancelled):
			t.log.WarnContext(ctx, "svc: calls of a tenant go on after its end", "tenant", s.name)
		}
	}
	return nil
}

// expel ends the service of a tenant that is suspended or dropped: its callers write nothing any
// longer. The contexts of its calls end after TenantGrace.
func (t *Tenants) expel(s *tenantService) {
	if s.expels.CompareAndSwap(false, true) {
		time.AfterFunc(TenantGrace, s.endIt)
	}
	t.leave(s)
}

// leave lets no new use of a tenant begin, and closes it after the last one. A tenant of that name
// may open next to it.
func (t *Tenants) leave(s *tenantService) {
	t.mu.Lock()
	select {
	case <-s.ended:
	default:
		if t.open[s.name] == s {
			delete(t.open, s.name)
		}
		t.leaving[s] = true
	}
	t.mu.Unlock()
	s.retired.Store(true)
	t.end(s)
}

// end closes a tenant that nobody uses, in the background.
func (t *Tenants) end(s *tenantService) {
	select {
	case <-s.ready:
	default:
		return // release follows
	}
	if s.err != nil || !s.users.CompareAndSwap(0, 1) {
		return
	}
	// Not in the group: Close of the group waits for these tenants, not the other way round.
	go func() {
		t.endDelivery(s)
		if !t.shut(s) { // it is used again
			t.startDelivery(s)
			t.release(s)
			return
		}
		if err := s.closeBoth(); err != nil {
			t.log.Error("svc: cannot close a tenant", "tenant", s.name, "error", err)
		}
		t.forget(s)
	}()
}

// closeBoth closes the Service, if there is one, and its store.
func (s *tenantService) closeBoth() (err error) {
	defer recovered("close a tenant", &err)
	if s.service != nil {
		err = s.service.Close()
	}
	return errors.Join(err, s.close())
}

// recovered makes a panic of a function of the host an error. Defer it where nobody above recovers.
func recovered(doing string, err *error) {
	if cause := recover(); cause != nil {
		*err = fault(doing, fmt.Errorf("panic: %v", cause))
	}
}

// shut lets nobody use a tenant that nobody but the caller uses, and takes it out of the list of
// open ones.
func (t *Tenants) shut(s *tenantService) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.users.CompareAndSwap(1, closing) {
		return false
	}
	if t.open[s.name] == s {
		delete(t.open, s.name)
	}
	t.leaving[s] = true
	return true
}

// confirm ends the service of an open tenant whose row says so.
func (t *Tenants) confirm(ctx context.Context, s *tenantService) error {
	tenant, err := t.config.Store.Tenant(ctx, s.name)
	if err != nil && !noRow(err) {
		return err
	}
	if tenant.Number != s.Number || tenant.State != TenantActive {
		t.expel(s)
	}
	return nil
}

// find returns the tenant of that name if it is open. Nil: it is not.
func (t *Tenants) find(name string) *tenantService {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.open[name]
}

// add adds a tenant, or returns the one that another call has added.
func (t *Tenants) add(s *tenantService) (other *tenantService) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other = t.open[s.name]; other == nil {
		t.open[s.name] = s
	}
	return other
}

// all returns the tenants that are open, or end with their running calls.
func (t *Tenants) all() []*tenantService {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.AppendSeq(slices.Collect(maps.Values(t.open)), maps.Keys(t.leaving))
}

// tidy closes tenants that are idle, and those too many or too large.
func (t *Tenants) tidy(ctx context.Context) {
	tick := time.NewTicker(tenantTick)
	defer tick.Stop()
	for background.Wait(ctx, tick.C) {
		t.tidyOnce(t.ticks.Add(1))
	}
}

func (t *Tenants) tidyOnce(now int64) {
	var open []*tenantService
	memory := int64(0)
	for _, s := range t.all() {
		select {
		case <-s.ready:
		default:
			continue
		}
		if s.err == nil {
			open = append(open, s)
			memory += s.service.memory()
		}
	}
	slices.SortFunc(open, func(a, b *tenantService) int {
		return cmp.Compare(a.used.Load(), b.used.Load())
	})
	for i, s := range open {
		unused := time.Duration(now-s.used.Load()) * tenantTick
		large := memory > t.config.Memory
		if large || len(open)-i > t.config.MaxOpen || unused > t.config.IdleTime {
			memory -= s.service.memory()
			if t.end(s); large {
				s.service.giveBack()
			}
		}
	}
}
