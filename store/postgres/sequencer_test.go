package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/internal/sqltest"
	"github.com/extsvc/svc/store/postgres"
	"github.com/extsvc/svc/store/sqlstore"
)

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
		return errors.Join(late(), failure(c.store.DB().Exec(`SELECT pg_terminate_backend($1)`, pid)))
	},
}

// trial runs one sequencer with something before its statement number at, and returns what is wrong with the records, and whether there was such a statement.
// mutate changes the sequencer; nil: it is as it is.
func trial(c *clerk, round string, at int, happens meanwhile, rival bool, mutate func(query string) string) (wrong string, met bool) {
	c.t.Helper()
	ctx := c.t.Context()
	before, late := sqltest.Value[int](c.t, c.store.DB(), `SELECT COUNT(*) FROM svc_audit`), c.late(round)
	for i, id := range []string{"-a", "-b"} {
		c.now.Store(int64(1e9 - i)) // the clock goes back
		is.New(c.t).NoErr(sqltest.CreateTemplate(ctx, c.service, round+id))
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
	is.New(c.t).NoErr(late())
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
	tx := must(c.store.DB().BeginTx(c.t.Context(), nil))
	c.t.Cleanup(func() { _ = tx.Rollback() })
	event := svc.Event{
		ID: uuid.Must(uuid.NewV7()), Time: time.Unix(2e9, 0).UTC(), Actor: svc.Host.Identity(), Action: event.TemplateCreated,
		Target: svc.Target{Kind: event.TargetTemplate, ID: round + "-late", Scope: svc.ScopeServer},
	}
	is.New(c.t).NoErr(sqlstore.Tx(tx, postgres.Dialect()).QueueAudit(c.t.Context(), []svc.Event{event}, nil)) // no mutation of this transaction makes others wait
	return sync.OnceValue(tx.Commit)
}

// awaitWaiting returns when done is closed, or when a connection of the test waits for a lock.
func (c *clerk) awaitWaiting(done chan struct{}) {
	c.t.Helper()
	expect.Soon(c.t, "the other sequencer neither waits nor ends", func() bool {
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
	long(t, "a sequencer between the statements of others")
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
	is := long(t, "a long queue of the audit")
	c := newClerk(t, migrated(t), postgres.Options{})
	at, count := 0, 0
	for met := true; met; at++ {
		round := fmt.Sprint("many-", at)
		late := c.late(round)
		const queued = 30 // of which the first statement reads fewer
		for i := range queued {
			is.NoErr(sqltest.CreateTemplate(t.Context(), c.service, fmt.Sprint(round, "-", i)))
		}
		must(c.service.Audit.Verify(t.Context(), svc.Host)) // c.idle learns the function
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
	longtest.Parallel(t, "that wrong sequencers are noticed")
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
