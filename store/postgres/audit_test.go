package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/postgres/pgtest"
	"github.com/extsvc/svc/store/sqlstore"
)

type chain = func(svc.AuditRecord, []svc.Event) []svc.AuditRecord

// idle is a store whose Services chain nothing until it is released. It keeps their function.
type idle struct {
	svc.FullStore
	chain    atomic.Pointer[chain]
	calls    sync.RWMutex // held by each call that chains
	released bool
}

// release waits for the calls that run.
func (s *idle) release(released bool) {
	s.calls.Lock()
	defer s.calls.Unlock()
	s.released = released
}

func (s *idle) ChainAudit(
	ctx context.Context, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord,
) (bool, error) {
	s.chain.Store(&chain)
	s.calls.RLock()
	defer s.calls.RUnlock()
	if !s.released {
		return false, ctx.Err()
	}
	return s.FullStore.ChainAudit(ctx, chain)
}

// clerk keeps the records of a database, and chains them by hand.
type clerk struct {
	t       *testing.T
	store   *postgres.Store
	idle    *idle
	service *svc.Service
	now     atomic.Int64 // of the Service's clock
}

func newClerk(t *testing.T, url string, options postgres.Options) *clerk {
	t.Helper()
	c := &clerk{t: t, store: open(t, url, options)}
	c.idle = &idle{FullStore: c.store}
	c.service = sqltest.Serve(t, svc.Config{
		Store: c.idle, Events: svc.EventConfig{Keep: true}, Now: func() time.Time { return time.Unix(c.now.Load(), 0) },
	})
	return c
}

// problemOf returns what is wrong with the chain when all are chained.
func (c *clerk) problemOf(count int) string {
	c.idle.release(true)
	defer c.idle.release(false)
	check, err := c.service.Audit.Verify(c.t.Context(), svc.Host)
	if err != nil || check.Fault != nil || check.Newest.Number != int64(count) {
		return fmt.Sprintf("%d records, want %d, %+v, %v", check.Newest.Number, count, check.Fault, err)
	}
	return ""
}

// problem is problemOf for records of one target each. Those of ordered come in this order.
func (c *clerk) problem(count int, ordered ...string) string {
	c.t.Helper()
	if problem := c.problemOf(count); problem != "" {
		return problem
	}
	var ids []string
	for r, err := range c.service.Audit.Records(c.t.Context(), svc.Host, svc.AuditQuery{}) {
		if err != nil {
			return err.Error()
		}
		ids = append(ids, r.Target.ID)
	}
	slices.Reverse(ids)
	last := -1
	for _, id := range ordered {
		at := slices.Index(ids, id)
		if at <= last {
			return fmt.Sprintf("%v, want %v in this order", ids, ordered)
		}
		last = at
	}
	if slices.Sort(ids); len(slices.Compact(slices.Clone(ids))) != len(ids) || len(ids) != count {
		return fmt.Sprintf("records of %v, want %d", ids, count)
	}
	return ""
}

// TestTwoProcessesChain: Services with clocks that go back, and a check among them, leave one chain with an order that each caller can tell.
func TestTwoProcessesChain(t *testing.T) {
	is := long(t, "two processes that chain")
	url := migrated(t)
	var services []*svc.Service
	var clock atomic.Int64
	for range 2 {
		services = append(services, sqltest.Serve(t, svc.Config{
			Store: open(t, url, postgres.Options{}), Events: svc.EventConfig{Keep: true},
			Now: func() time.Time { return time.Unix(1e9-clock.Add(1), 0) },
		}))
	}
	const callers = 4
	each := 250
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for n := range each {
				must(0, sqltest.CreateTemplate(t.Context(), services[n%2], fmt.Sprint(caller, "-", n)))
				if n%10 == 0 {
					check, err := services[caller%2].Audit.Verify(t.Context(), svc.Host)
					expect.Holds(t, err == nil && check.Fault == nil, check.Fault, err)
				}
			}
		})
	}
	done.Wait()
	check := must(services[0].Audit.Verify(t.Context(), svc.Host))
	is.Equal(check.Fault, nil)
	is.Equal(check.Newest.Number, int64(callers*each))
	next := map[string]int{} // by caller, of its records from the newest on
	for r, err := range services[1].Audit.Records(t.Context(), svc.Host, svc.AuditQuery{}) {
		is.NoErr(err)
		caller, n, _ := strings.Cut(r.Target.ID, "-")
		next[caller]++
		is.Equal(n, fmt.Sprint(each-next[caller]))
	}
}

// TestChainedUnasked: events that a process has left in the queue are chained by another, which nobody asks.
func TestChainedUnasked(t *testing.T) {
	is := parallel(t)
	c := newClerk(t, migrated(t), postgres.Options{})
	is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, "a"))
	is.NoErr(c.service.Close())
	sqltest.Serve(t, svc.Config{Store: c.store, Events: svc.EventConfig{Keep: true}})
	expect.Soon(t, "nobody chains", func() bool { return len(must(c.store.AuditRecords(t.Context(), svc.AuditQuery{Limit: 2}))) == 1 })
}

// TestForgetUserInTheQueue: a user is forgotten whose events are still in the queue, while another
// transaction has queued one that commits later.
func TestForgetUserInTheQueue(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	c := newClerk(t, migrated(t), postgres.Options{})
	name := "Alice Liddell"
	is.NoErr(c.service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "alice", DisplayName: name}}}))
	late := c.late("x")
	is.NoErr(c.service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "alice", DisplayName: name + " II"}}}))
	kept := func() int {
		return sqltest.Value[int](t, c.store.DB(), `SELECT (SELECT COUNT(*) FROM svc_audit_queue WHERE events LIKE '%Liddell%') +
			(SELECT COUNT(*) FROM svc_audit WHERE row_was || row_is LIKE '%Liddell%')`)
	}
	is.Equal(kept(), 2) // in the queue
	is.NoErr(c.service.ForgetUser(ctx, svc.Host, "alice"))
	is.Equal(kept(), 0)
	is.NoErr(late())
	is.Equal(c.problemOf(4), "")
	is.Equal(must(c.service.Audit.Verify(ctx, svc.Host)).Erased, int64(4)) // new, changed twice, gone
}

// TestVerifyOnAStandby: who can only read checks the records, while events wait for somebody else.
func TestVerifyOnAStandby(t *testing.T) {
	is := long(t, "verification on a standby")
	url := migrated(t)
	c := newClerk(t, url, postgres.Options{})
	is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, "a"))
	is.Equal(c.problemOf(1), "")
	is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, "b")) // waits
	reader := newClerk(t, pgtest.With(t, url, "default_transaction_read_only", "on"), postgres.Options{NoNotify: true})
	is.Equal(reader.problemOf(1), "")
	is.Equal(c.problemOf(2), "")
}

// queued puts calls of so many events into the queue.
func queued(t *testing.T, db *sql.DB, calls, each int) {
	t.Helper()
	is := is.New(t)
	tx := must(db.Begin())
	for range calls {
		is.NoErr(sqlstore.Tx(tx, postgres.Dialect()).QueueAudit(t.Context(), make([]svc.Event, each), nil))
	}
	is.NoErr(tx.Commit())
}

// Lists of records chain what is queued. While they wait for another process that chains, they leave the connections to others.
func TestThoseWhoChainHoldOneConnection(t *testing.T) {
	is := long(t, "the connections of those who chain")
	url := migrated(t)
	few := postgres.Options{MaxOpen: 2, NoNotify: true}
	store, other := open(t, url, few), open(t, url, few)
	queued(t, other.DB(), 1, 1)
	tx := must(other.DB().Begin())
	defer func() { _ = tx.Rollback() }()
	must(tx.Exec(`UPDATE svc_locks SET name = name WHERE name = 'audit'`)) // as a process of an earlier version
	var group sync.WaitGroup
	var begun atomic.Int32
	for range 20 {
		group.Go(func() {
			begun.Add(1)
			must(store.ChainAudit(t.Context(), noRecords))
		})
	}
	expect.Soon(t, "nobody waits for the lock", func() bool { return begun.Load() == 20 && locksAwaited(t, other.DB()) > 0 })
	for range 20 {
		must(store.Changes(t.Context(), 0))
		is.Equal(locksAwaited(t, other.DB()), 1)
	}
	is.NoErr(tx.Rollback())
	group.Wait()
}

func noRecords(svc.AuditRecord, []svc.Event) []svc.AuditRecord { return nil }

// After a large bundle, many processes chain what is queued. They come in the order in which they began to wait.
func TestProcessesChainInOrder(t *testing.T) {
	is := long(t, "the order of many processes that chain")
	const processes = 8
	url := migrated(t)
	db := open(t, url, postgres.Options{MaxOpen: 2, NoNotify: true}).DB()
	var stores []*postgres.Store
	for range processes {
		stores = append(stores, open(t, url, postgres.Options{MaxOpen: 1, NoNotify: true}))
	}
	queued(t, db, 2*processes, 1000)
	tx := must(db.Begin())
	defer func() { _ = tx.Rollback() }()
	ctx, order := t.Context(), make(chan int, processes)
	chain := func(i int) chain {
		return func(svc.AuditRecord, []svc.Event) []svc.AuditRecord { order <- i; return nil }
	}
	must(sqlstore.Tx(tx, postgres.Dialect()).ChainAudit(ctx, noRecords))
	var group sync.WaitGroup
	for i, store := range stores {
		group.Go(func() {
			must(store.ChainAudit(ctx, chain(i)))
		})
		expect.Soon(t, "it does not wait for the lock", func() bool { return locksAwaited(t, db) > i })
	}
	is.NoErr(tx.Commit())
	group.Wait()
	close(order)
	for i := range processes {
		is.Equal(<-order, i)
	}
}
