package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
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
	service, err := svc.New(svc.Config{
		Store: c.idle, Events: svc.EventConfig{Keep: true}, Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 16)}}},
		Now: func() time.Time { return time.Unix(c.now.Load(), 0) },
	})
	is.New(t).NoErr(err)
	c.service = service
	t.Cleanup(func() { _ = service.Close() })
	return c
}

// problemOf returns what is wrong with the chain when all are chained.
func (c *clerk) problemOf(count int) string {
	c.t.Helper()
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

// tapped is a transaction of a sequencer. before is called before each statement, and with the commit; it returns the statement to run.
type tapped struct {
	tx     *sql.Tx
	before func(query string) (string, error)
}

func (t tapped) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	query, err := t.before(query)
	if err != nil || query == "" {
		return 1, err
	}
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t tapped) Query(ctx context.Context, query string, args ...any) (sqlstore.Rows, error) {
	query, err := t.before(query)
	if err != nil {
		return nil, err
	}
	rows, err := t.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// sequence chains in a transaction that calls before.
func (c *clerk) sequence(before func(tx *sql.Tx, query string) (string, error)) error {
	ctx := c.t.Context()
	tx, err := c.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	calls := tapped{tx, func(query string) (string, error) { return before(tx, query) }}
	if _, err := sqlstore.TxOf(calls, postgres.Dialect()).ChainAudit(ctx, *c.idle.chain.Load()); err != nil {
		return err
	}
	if _, err := before(tx, "COMMIT"); err != nil {
		return err
	}
	return tx.Commit()
}

// meanwhile is what happens before one statement of a sequencer.
type meanwhile func(c *clerk, tx *sql.Tx, late func() error) (err error)

var meanwhiles = map[string]meanwhile{
	"a transaction with a smaller number commits": func(_ *clerk, _ *sql.Tx, late func() error) error { return late() },
	"its connection dies": func(c *clerk, tx *sql.Tx, late func() error) error {
		var pid int
		if err := tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			return err
		}
		_, err := c.store.DB().Exec(`SELECT pg_terminate_backend($1)`, pid)
		return errors.Join(late(), err)
	},
}

// trial runs one sequencer with something before its statement number at, and returns what is wrong with the records, and whether there was such a statement.
// mutate changes the sequencer; nil: it is as it is.
func trial(c *clerk, round string, at int, happens meanwhile, rival bool, mutate func(query string) string) (wrong string, met bool) {
	c.t.Helper()
	ctx := c.t.Context()
	count := func() (n int) {
		if err := c.store.DB().QueryRow(`SELECT (SELECT COUNT(*) FROM svc_audit)`).Scan(&n); err != nil {
			c.t.Fatal(err)
		}
		return n
	}
	before, late := count(), c.late(round)
	for i, id := range []string{"-a", "-b"} {
		c.now.Store(int64(1e9 - i)) // the clock goes back
		if err := sqltest.CreateTemplate(ctx, c.service, round+id); err != nil {
			c.t.Fatal(err)
		}
	}
	if _, err := c.service.Audit.Verify(ctx, svc.Host); err != nil { // c.idle learns the function
		c.t.Fatal(err)
	}
	n := -1
	var others sync.WaitGroup
	failed := c.sequence(func(tx *sql.Tx, query string) (string, error) {
		if n++; n == at {
			met = true
			if rival {
				done := make(chan struct{})
				others.Go(func() {
					defer close(done)
					_, err := c.store.ChainAudit(ctx, *c.idle.chain.Load())
					for errors.Is(err, svc.ErrUnavailable) && ctx.Err() == nil { // the server had no connection left, or was slow
						_, err = c.store.ChainAudit(ctx, *c.idle.chain.Load())
					}
					if err != nil && mutate == nil {
						c.t.Error(err) // beside a wrong sequencer it may well meet a number twice
					}
				})
				c.awaitWaiting(done)
			}
			if err := happens(c, tx, late); err != nil {
				return "", err
			}
		}
		if mutate != nil {
			query = mutate(query)
		}
		return query, nil
	})
	others.Wait()
	if err := late(); err != nil {
		c.t.Fatal(err)
	}
	if failed != nil && mutate != nil {
		wrong = failed.Error()
	}
	if problem := c.problem(before+3, round+"-a", round+"-b"); problem != "" {
		wrong = problem
	}
	return wrong, met
}

// late queues an event "-late" of a round in a transaction, and returns its commit.
func (c *clerk) late(round string) (commit func() error) {
	c.t.Helper()
	tx, err := c.store.DB().BeginTx(c.t.Context(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = tx.Rollback() })
	event := svc.Event{
		ID: uuid.Must(uuid.NewV7()), Time: time.Unix(2e9, 0).UTC(), Actor: svc.Host.Identity(), Action: event.TemplateCreated,
		Target: svc.Target{Kind: event.TargetTemplate, ID: round + "-late", Scope: svc.ScopeServer},
	}
	err = sqlstore.Tx(tx, postgres.Dialect()).QueueAudit(c.t.Context(), []svc.Event{event}, nil) // no mutation of this transaction makes others wait
	if err != nil {
		c.t.Fatal(err)
	}
	return sync.OnceValue(tx.Commit)
}

// awaitWaiting returns when done is closed, or when a connection of the test waits for a lock.
func (c *clerk) awaitWaiting(done chan struct{}) {
	c.t.Helper()
	await(c.t, "the other sequencer neither waits nor ends", func() bool {
		select {
		case <-done:
			return true
		default:
			return locksAwaited(c.t, c.store.DB()) > 0
		}
	})
}

// TestSequencerAmongOthers: whatever happens between two statements of a sequencer, no event is lost or chained twice, and the order is that of the calls.
func TestSequencerAmongOthers(t *testing.T) {
	t.Parallel()
	c := newClerk(t, migrated(t), postgres.Options{})
	for name, happens := range meanwhiles {
		for _, rival := range []bool{false, true} {
			at, met := 0, true
			for ; met; at++ {
				var wrong string
				round := fmt.Sprintf("%.5s-%t-%d", name, rival, at)
				if wrong, met = trial(c, round, at, happens, rival, nil); wrong != "" {
					t.Fatalf("%s before statement %d, with a rival %t: %s", name, at, rival, wrong)
				}
			}
			if at < 6 { // lock, queue, newest, insert, delete, commit
				t.Errorf("only %d statements", at)
			}
		}
	}
}

// TestSequencerOfManyEvents: while a sequencer reads a long queue, statement by statement, an event with a small number is
// committed, and then another by the same caller. They come in this order.
func TestSequencerOfManyEvents(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := newClerk(t, migrated(t), postgres.Options{})
	at, count := 0, 0
	for met := true; met; at++ {
		round := fmt.Sprint("many-", at)
		late := c.late(round)
		const queued = 30 // of which the first statement reads fewer
		for i := range queued {
			is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, fmt.Sprint(round, "-", i)))
		}
		_, err := c.service.Audit.Verify(t.Context(), svc.Host) // c.idle learns the function
		is.NoErr(err)
		n := -1
		then := func() error {
			return errors.Join(late(), sqltest.CreateTemplate(t.Context(), c.service, round+"-then"))
		}
		met = false
		is.NoErr(c.sequence(func(_ *sql.Tx, query string) (string, error) {
			if n++; n == at {
				met = true
				return query, then()
			}
			return query, nil
		}))
		if !met {
			is.NoErr(then())
		}
		count += queued + 2
		if problem := c.problem(count, round+"-late", round+"-then"); problem != "" {
			t.Fatalf("before statement %d: %s", at, problem)
		}
	}
	is.True(at > 8) // lock, queue three times, newest, insert, delete, commit, and one that is none
}

// TestWrongSequencers: the trials notice sequencers that are wrong.
func TestWrongSequencers(t *testing.T) {
	longtest.Test(t, "that wrong sequencers are noticed")
	t.Parallel()
	replace := func(old, new string) func(string) string {
		return func(query string) string { return strings.Replace(query, old, new, 1) }
	}
	var lock string
	for name, mutate := range map[string]func(string) string{
		"it orders by time": replace(`ORDER BY seq`, `ORDER BY events::json->0->>'Time'`),
		"it deletes a range": func(query string) string {
			if !strings.HasPrefix(query, "DELETE FROM svc_audit_queue") {
				return query
			}
			return `DELETE FROM svc_audit_queue WHERE seq <= (SELECT MAX(CAST(value AS BIGINT)) FROM jsonb_array_elements_text($1))`
		},
		"it reads before the lock": func(query string) string {
			switch {
			case strings.Contains(query, "FROM svc_locks"):
				lock = query
				return ""
			case strings.Contains(query, "INSERT INTO svc_audit "):
				return `WITH late AS (` + lock + `), ` + strings.TrimPrefix(query, "WITH ") + `, late`
			}
			return query
		},
		"it deletes nothing": func(query string) string {
			if strings.HasPrefix(query, "DELETE FROM svc_audit_queue") {
				return ""
			}
			return query
		},
	} {
		c, caught := newClerk(t, migrated(t), postgres.Options{}), ""
		for n := 0; n < 12 && caught == ""; n++ {
			round := fmt.Sprint("round-", n)
			caught, _ = trial(c, round, n/2, meanwhiles["a transaction with a smaller number commits"], n%2 == 1, mutate)
		}
		if t.Logf("%s: %s", name, caught); caught == "" {
			t.Errorf("%s, and nobody notices", name)
		}
	}
}

// TestTwoProcessesChain: Services with clocks that go back, and a check among them, leave one chain with an order that each caller can tell.
func TestTwoProcessesChain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := migrated(t)
	var services []*svc.Service
	var clock atomic.Int64
	for range 2 {
		service, err := svc.New(svc.Config{
			Store: open(t, url, postgres.Options{}), Events: svc.EventConfig{Keep: true},
			Keys: svc.KeyConfig{Peppers: []svc.Pepper{{Version: "1", Secret: make([]byte, 16)}}},
			Now:  func() time.Time { return time.Unix(1e9-clock.Add(1), 0) },
		})
		is.NoErr(err)
		defer service.Close()
		services = append(services, service)
	}
	const callers = 4
	each := longtest.Times(25, 250)
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for n := range each {
				if err := sqltest.CreateTemplate(t.Context(), services[n%2], fmt.Sprint(caller, "-", n)); err != nil {
					t.Error(err)
				}
				if n%10 == 0 {
					check, err := services[caller%2].Audit.Verify(t.Context(), svc.Host)
					if err != nil || check.Fault != nil {
						t.Error(check.Fault, err)
					}
				}
			}
		})
	}
	done.Wait()
	check, err := services[0].Audit.Verify(t.Context(), svc.Host)
	is.NoErr(err)
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
	t.Parallel()
	is := is.New(t)
	c := newClerk(t, migrated(t), postgres.Options{})
	is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, "a"))
	is.NoErr(c.service.Close())
	other, err := svc.New(svc.Config{Store: c.store, Events: svc.EventConfig{Keep: true}})
	is.NoErr(err)
	defer other.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		records, err := c.store.AuditRecords(t.Context(), svc.AuditQuery{Limit: 2})
		is.NoErr(err)
		if len(records) == 1 {
			return
		}
	}
	t.Error("nobody chains")
}

// TestForgetUserInTheQueue: a user is forgotten whose events are still in the queue, while another
// transaction has queued one that commits later.
func TestForgetUserInTheQueue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	c := newClerk(t, migrated(t), postgres.Options{})
	name := "Alice Liddell"
	is.NoErr(c.service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "alice", DisplayName: name}}}))
	tx, err := c.store.DB().BeginTx(ctx, nil)
	is.NoErr(err)
	defer tx.Rollback()
	late := svc.Event{
		ID: uuid.Must(uuid.NewV7()), Time: time.Unix(2e9, 0).UTC(), Actor: svc.Host.Identity(), Action: event.TemplateCreated,
		Target: svc.Target{Kind: event.TargetTemplate, ID: "late", Scope: svc.ScopeServer},
	}
	is.NoErr(sqlstore.Tx(tx, postgres.Dialect()).QueueAudit(ctx, []svc.Event{late}, nil))
	is.NoErr(c.service.Access.Apply(ctx, svc.Host, svc.Bundle{Users: []svc.User{{ID: "alice", DisplayName: name + " II"}}}))
	kept := func() (n int) {
		is.NoErr(c.store.DB().QueryRow(`SELECT (SELECT COUNT(*) FROM svc_audit_queue WHERE events LIKE '%Liddell%') +
			(SELECT COUNT(*) FROM svc_audit WHERE row_was || row_is LIKE '%Liddell%')`).Scan(&n))
		return n
	}
	is.Equal(kept(), 2) // in the queue
	is.NoErr(c.service.ForgetUser(ctx, svc.Host, "alice"))
	is.Equal(kept(), 0)
	is.NoErr(tx.Commit())
	is.Equal(c.problemOf(4), "")
	check, err := c.service.Audit.Verify(ctx, svc.Host)
	is.NoErr(err)
	is.Equal(check.Erased, int64(4)) // new, changed twice, gone
}

// TestVerifyOnAStandby: who can only read checks the records, while events wait for somebody else.
func TestVerifyOnAStandby(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := migrated(t)
	c := newClerk(t, url, postgres.Options{})
	is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, "a"))
	is.Equal(c.problemOf(1), "")
	is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, "b")) // waits
	reader := newClerk(t, pgtest.With(t, url, "default_transaction_read_only", "on"), postgres.Options{NoNotify: true})
	is.Equal(reader.problemOf(1), "")
	is.Equal(c.problemOf(2), "")
}

// waiting returns how many wait for a lock in the database of a store.
func waiting(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	err := db.QueryRow(`SELECT COUNT(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND backend_type = 'client backend'`).Scan(&n)
	is.New(t).NoErr(err)
	return n
}

// queued puts calls of so many events into the queue.
func queued(t *testing.T, db *sql.DB, calls, each int) {
	t.Helper()
	is := is.New(t)
	tx, err := db.Begin()
	is.NoErr(err)
	for range calls {
		is.NoErr(sqlstore.Tx(tx, postgres.Dialect()).QueueAudit(t.Context(), make([]svc.Event, each), nil))
	}
	is.NoErr(tx.Commit())
}

// Lists of records chain what is queued. While they wait for another process that chains, they leave the connections to others.
func TestThoseWhoChainHoldOneConnection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.Database(t)
	few := postgres.Options{MaxOpen: 2, NoNotify: true}
	store, other := open(t, url, few), open(t, url, few)
	queued(t, other.DB(), 1, 1)
	tx, err := other.DB().Begin()
	is.NoErr(err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec(`UPDATE svc_locks SET name = name WHERE name = 'audit'`) // as a process of an earlier version
	is.NoErr(err)
	var group sync.WaitGroup
	var begun atomic.Int32
	for range 20 {
		group.Go(func() {
			begun.Add(1)
			if _, err := store.ChainAudit(t.Context(), noRecords); err != nil {
				t.Error(err)
			}
		})
	}
	for begun.Load() < 20 || waiting(t, other.DB()) == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		_, err = store.Changes(t.Context(), 0)
		is.NoErr(err)
		is.True(waiting(t, other.DB()) <= 1)
	}
	is.NoErr(tx.Rollback())
	group.Wait()
}

func noRecords(svc.AuditRecord, []svc.Event) []svc.AuditRecord { return nil }

// After a large bundle, many processes chain what is queued. They come in the order in which they began to wait.
func TestProcessesChainInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const processes = 8
	url := pgtest.Database(t)
	db := open(t, url, postgres.Options{MaxOpen: 2, NoNotify: true}).DB()
	var stores []*postgres.Store
	for range processes {
		stores = append(stores, open(t, url, postgres.Options{MaxOpen: 1, NoNotify: true}))
	}
	queued(t, db, 2*processes, 1000)
	tx, err := db.Begin()
	is.NoErr(err)
	defer func() { _ = tx.Rollback() }()
	ctx, order := t.Context(), make(chan int, processes)
	chain := func(i int) chain {
		return func(svc.AuditRecord, []svc.Event) []svc.AuditRecord { order <- i; return nil }
	}
	_, err = sqlstore.Tx(tx, postgres.Dialect()).ChainAudit(ctx, noRecords)
	is.NoErr(err)
	var group sync.WaitGroup
	for i, store := range stores {
		group.Go(func() {
			if _, err := store.ChainAudit(ctx, chain(i)); err != nil {
				t.Error(err)
			}
		})
		for end := time.Now().Add(time.Minute); waiting(t, db) <= i && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	is.NoErr(tx.Commit())
	group.Wait()
	close(order)
	for i := range processes {
		is.Equal(<-order, i)
	}
}
