//go:build linux

package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/longtest"
)

// database is a database reopened after a crash.
type database struct {
	store   svc.Store
	service *svc.Service
	host    *hostDB
	sqlite  bool
	keeps   bool // records of events
}

// reopen opens a database as a host does.
func (j job) reopen(ctx context.Context) (*database, error) {
	keeps := j.Fault.keeps()
	j.Fault, j.patient = sound, true
	store, host, err := j.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("reopen: %w", err)
	}
	service, err := newService(store, nil, nil, keeps)
	return &database{store, service, host, j.Driver == "sqlite", keeps}, err
}

func (d *database) close() error {
	err := d.host.Close()
	if closer, ok := d.store.(interface{ Close() error }); ok {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// check reopens a database, compares it with the ledger, notes every problem and closes it. With
// settle, check accepts the present state of operations under way: what was tried before may not
// change any more. What the checks cannot read, they panic with.
func (l *ledger) check(ctx context.Context, j job, settle bool) {
	defer func() {
		if cause := recover(); cause != nil {
			if _, mistake := cause.(runtime.Error); mistake {
				panic(cause)
			}
			l.problem("torn: the database cannot be read: %v", cause)
		}
	}()
	d := got(j.reopen(ctx))
	defer func() { got(0, d.close()) }()
	l.compare(ctx, d, settle)
}

func (l *ledger) compare(ctx context.Context, d *database, settle bool) {
	changes := got(d.store.Changes(ctx, l.since))
	found := observe(ctx, d.host.DB)
	got(0, l.sync())
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.sqlite {
		l.checkFile(ctx, d.host.DB)
	}
	l.checkStates(found)
	l.checkFeed(d, changes)
	newest, tells := l.checkRecords(ctx, d, int(changes.Generation-l.since))
	if d.keeps {
		l.checkTale(tells, found)
	}
	l.checkKeys(ctx, d.service)
	if settle {
		l.accept(found)
		l.settle(changes.Generation)
		l.mark, l.tells = newest, tells
	}
}

// checkFile runs SQLite's own check.
func (l *ledger) checkFile(ctx context.Context, db *sql.DB) {
	o := observation{db: db}
	for _, row := range o.rows(ctx, `PRAGMA integrity_check`) {
		if row[0] != "ok" {
			l.problemLocked("torn: integrity_check: %s", row[0])
		}
	}
	for _, row := range o.rows(ctx, `PRAGMA foreign_key_check`) {
		l.problemLocked("torn: foreign_key_check: %q", row)
	}
}

func (l *ledger) checkStates(found observation) {
	for name, e := range l.objects {
		state, there := found.states[name]
		if !there {
			state = absent
		}
		may := []string{e.state}
		if e.attempt != nil {
			may = append(may, e.attempt.state)
		}
		switch {
		case strings.HasPrefix(state, torn):
			l.problemLocked("torn: %s: %s", name, strings.TrimPrefix(state, torn))
		case !slices.Contains(may, state):
			l.problemLocked("lost: %s: %s was acknowledged, %s is there", name, e.state, state)
		case state == stateHosted && !e.told && !found.outbox[name]:
			l.problemLocked("torn: %s: its event is not in the outbox, and was not delivered", name)
		}
	}
	for name, state := range found.states {
		if l.objects[name] == nil {
			l.problemLocked("invented: %s: %s, which was never tried", name, state)
		}
	}
}

// checkFeed compares the change feed with the operations acknowledged since the last settlement.
func (l *ledger) checkFeed(d *database, changes svc.StoreChanges) {
	if changes.Generation < l.seen {
		l.problemLocked("order: the generation was %d and is %d", l.seen, changes.Generation)
	}
	if grown := int(changes.Generation - l.since); grown < l.changes || grown > l.tried {
		l.problemLocked("order: the generation grew by %d, for %d acknowledged and %d tried", grown, l.changes, l.tried)
	}
	if changes.Reset {
		if d.sqlite && changes.Generation-l.since <= 1000 { // a new Store of PostgreSQL knows the first state alone
			l.problemLocked("order: the feed forgot what changed from %d to %d", l.since, changes.Generation)
		}
		return
	}
	fed := map[string]bool{}
	for _, target := range changes.Targets {
		name := object(target)
		if fed[name] = true; l.objects[name] == nil {
			l.problemLocked("invented: a change of %s, which was never tried", name)
		}
	}
	for name, e := range l.objects {
		if e.fed && !fed[name] {
			l.problemLocked("order: the feed lacks the change of %s", name)
		}
	}
}

// checkRecords compares the records of events with the mutations since the last settlement. Each
// mutation has one record, and so has each issue. It returns the newest, and what all records tell of people.
func (l *ledger) checkRecords(ctx context.Context, d *database, mutations int) (svc.AuditPosition, tale) {
	if !d.keeps {
		return svc.AuditPosition{}, nil
	}
	tells, check := l.tells.clone(), got(d.service.Audit.Verify(ctx, svc.Host, l.mark))
	if check.Fault != nil {
		l.problemLocked("lost: record %d %s", check.Fault.Number, check.Fault.Reason)
	}
	recorded, kept := 0, map[string]bool{}
	for record, err := range d.service.Audit.Records(ctx, svc.Host, svc.AuditQuery{}) {
		if got(record, err).Number <= l.mark.Number {
			break
		}
		kept[object(record.Target)] = true
		if wrong := tells.add(record); wrong != "" {
			l.problemLocked("torn: %s", wrong)
		}
		if told(record.Event) && record.Action != event.TemplateDiverged && // that record comes together with another
			(record.Action != event.APIKeyIssued || strings.HasPrefix(object(record.Target), "h-")) {
			recorded++
		}
	}
	if recorded != mutations {
		l.problemLocked("torn: %d records of %d mutations", recorded, mutations)
	}
	for name, e := range l.objects {
		if e.changed && !kept[name] {
			l.problemLocked("lost: %s: no record of what was acknowledged", name)
		}
	}
	return check.Newest, tells
}

// checkKeys authenticates with every acknowledged key.
func (l *ledger) checkKeys(ctx context.Context, service *svc.Service) {
	for name, e := range l.objects {
		if e.token == "" || e.attempt != nil {
			continue
		}
		principal, err := service.Authenticate(ctx, e.token)
		refused := svc.ErrorCode(err) == svc.CodeUnauthenticated
		switch {
		case err != nil && !refused:
			panic(err)
		case refused && (e.state == stateGood || has(e.state, "key")):
			l.problemLocked("lost: %s: an issued key is refused", name)
		case !refused && (e.state == stateRevoked || isPerson(name) && !has(e.state, "key")):
			l.problemLocked("lost: %s: a revoked key is accepted", name)
		case !refused && principal.ID != name:
			l.problemLocked("torn: the key of %s is accepted as that of %s", name, principal.ID)
		}
	}
}

// accept takes the state found as the outcome of each operation under way.
func (l *ledger) accept(found observation) {
	for name, e := range l.objects {
		before := e.state
		if e.state = absent; found.states[name] != "" {
			e.state = found.states[name]
		}
		if e.attempt != nil && e.state == e.attempt.state {
			l.happened++
		} else if e.attempt != nil && e.state == before {
			l.undone++
		}
		e.attempt = nil
	}
	clear(l.tries)
}

// settle lets the checks of changes and records begin after a generation.
func (l *ledger) settle(generation int64) {
	for _, e := range l.objects {
		e.changed, e.fed = false, false
	}
	l.since, l.changes, l.tried = generation, 0, 0
}

// damageOf is a statement that undoes a part of the acknowledged state, with the kinds of problems, one of
// which it causes.
type damageOf struct {
	kinds     []string
	statement string
}

// damages reads those of testdata/damages.txt.
func damages(t *testing.T) (all []damageOf) {
	for line := range strings.Lines(string(got(os.ReadFile("testdata/damages.txt")))) {
		if kinds, statement, _ := strings.Cut(strings.TrimSpace(line), " "); kinds != "#" {
			all = append(all, damageOf{strings.Split(kinds, "+"), statement})
		}
	}
	return all
}

// TestOracle shows that every kind of damage is a problem, including an outbox event that was never
// delivered. Outside of CI it does one damage of four, others in each run.
func TestOracle(t *testing.T) {
	const tries = 10
	for range tries {
		missed := damage(t)
		if missed == "" {
			return
		}
		t.Logf("again: at the kill there was nothing to damage: %s", missed)
	}
	t.Fatalf("nothing to damage in %d tries", tries)
}

// damage does every damage to copies of a database whose server was killed. It returns the one that
// found no row to damage: people are deleted as well as made. "": it has done all of them.
func damage(t *testing.T) (missed string) {
	t.Helper()
	j := job{Driver: "sqlite", Address: filepath.Join(t.TempDir(), "svc.db"), Clients: clients, Run: "0"}
	l := newLedger()
	p := l.start(t, j)
	must(t, p.awaitReady())
	l.await(t, "too little was acknowledged", func() bool { return l.count(&l.acks) >= 600 })
	p.kill()
	l.check(background, j, false)
	if !l.sound() || l.seen == 0 {
		t.Fatalf("generation %d, problems %q", l.seen, l.found())
	}
	host := pool(j.Address, "off")
	l.accept(observe(background, host)) // else what was under way at the kill may be missing
	must(t, host.Close())
	each := longtest.Times(24, 1)
	all := damages(t)
	for i := rand.N(each); i < len(all); i += each {
		damage, damaged := all[i], j
		damaged.Address = filepath.Join(t.TempDir(), "svc.db")
		copySparse(damaged.Address, j.Address)
		db := pool(damaged.Address, "off")
		done := got(db.Exec(damage.statement))
		must(t, db.Close())
		if n, _ := done.RowsAffected(); n == 0 && !strings.HasPrefix(damage.statement, "PRAGMA") {
			must(t, l.close())
			return damage.statement
		}
		l.problems = nil
		l.check(background, damaged, false)
		r := result{problems: l.found()}
		r.finds(t, damage.kinds...)
		if t.Failed() {
			t.Fatal(damage.statement)
		}
	}
	db := pool(j.Address, "off")
	must(t, failure(db.Exec(`DELETE FROM svc_outbox`)))
	must(t, db.Close())
	for _, e := range l.objects {
		e.told = false
	}
	l.problems = nil
	l.check(background, j, false)
	r := result{problems: l.found()}
	r.finds(t, "torn")
	must(t, l.close())
	return ""
}

// TestOracleHearsEvents shows that an event counts as an acknowledgement: it must be neither missing nor untrue.
func TestOracleHearsEvents(t *testing.T) {
	for _, c := range []struct{ kind, lines string }{
		{"event", "try 1 k-1 api_key.issued good\nack 1 x\n"},
		{"event", "try 1 k-1 api_key.issued good\nevent k-1 api_key.issued\nfail 1 unavailable x\n"},
		{"invented", "event k-1 api_key.issued\n"},
		{"refused", "try 1 k-1 api_key.issued good\nfail 1 internal x\n"},
		{"lost", "try 1 k-1 api_key.issued good\nevent k-1 api_key.issued\n"},
		{"order", "generation 2\ngeneration 1\n"},
	} {
		l := newLedger()
		l.mayFail = true
		must(t, failure(l.writer.WriteString(c.lines)))
		l.check(background, job{Driver: "sqlite", Address: filepath.Join(t.TempDir(), "svc.db")}, false)
		r := result{problems: l.found()}
		r.finds(t, c.kind)
		must(t, l.close())
	}
}
