package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/changefeed"
)

const (
	remembered  = 10_000 // the number of generations whose changes stay
	forgetEvery = 256    // a Store deletes older changes once in so many mutations
	forgotten   = 1024   // the most generations that one such deletion drops

	patience      = 500 * time.Millisecond // the wait of AwaitChange
	usualRows     = 64                     // the default of Dialect.Rows
	changeColumns = 8                      // parameters in a row
)

var errNoGeneration = errors.New(
	"the row of table svc_generation is missing: restore the tables from a backup")

// change runs fn, which changes target, in a transaction like changeMany.
func (s *Store) change(ctx context.Context, doing string, target svc.Target, fn work) error {
	return s.changeMany(ctx, doing, func(ctx context.Context, tx session) ([]svc.Target, error) {
		return []svc.Target{target}, fn(ctx, tx)
	})
}

// changeMany runs fn in a transaction, then increments the generation and records the targets that
// fn returns. This order has two effects: a reader of the new generation sees what fn wrote, and
// writers wait for each other only at the end. Inside Atomically that is the end of fn of
// Atomically. When fn fails, panics or returns errUnchanged, the transaction writes nothing.
func (s *Store) changeMany(
	ctx context.Context, doing string,
	fn func(ctx context.Context, tx session) ([]svc.Target, error),
) error {
	return s.mutate(ctx, doing, func(ctx context.Context, tx session) (mutation, error) {
		targets, err := fn(ctx, tx)
		return mutation{Targets: targets}, err
	})
}

// mutation is what one mutation changed, as Changes then reports it.
type mutation struct {
	Targets []svc.Target `json:",omitempty"`
	Renamed []svc.Target `json:",omitempty"`
}

// mutate is changeMany for a change that also renames rows.
func (s *Store) mutate(
	ctx context.Context, doing string,
	fn func(ctx context.Context, tx session) (mutation, error),
) error {
	untold := false
	err := s.transact(ctx, doing, func(ctx context.Context, tx session) error {
		m, err := fn(ctx, tx)
		switch {
		case err != nil:
			return err
		case tx.changed != nil:
			*tx.changed = append(*tx.changed, m)
			return nil
		}
		untold, err = s.record(ctx, tx, m)
		return err
	})
	if err == nil {
		s.committed(untold)
	}
	return err
}

// committed wakes the callers that wait for a change in this process, and in others when the
// transaction has not told them.
func (s *Store) committed(untold bool) {
	s.news.tell()
	if untold {
		s.pace.after(func() { _ = s.tell() }) // without it, other processes notice within a second
	}
}

// record increments the generation for each mutation and stores the mutation's targets under it.
// All statements may wait for the commit, so that no other writer waits for answers to this one.
// untold: another notification was sent just now, so this one must come later.
func (s *Store) record(
	ctx context.Context, tx session, mutations ...mutation,
) (untold bool, err error) {
	for _, m := range mutations {
		if err := tx.increment(ctx, m, s.dialect); err != nil {
			return false, err
		}
	}
	if s.mutations.Add(1)%forgetEvery == 1 {
		err = tx.forget(ctx)
	}
	if t := s.dialect.Tenant; t != nil && err == nil {
		err = t.move(ctx, tx)
	}
	switch {
	case err != nil || s.dialect.Notify == "":
		return false, err
	case s.write != nil && !s.pace.due():
		return true, nil
	}
	return false, tx.later(ctx, nil, s.dialect.Notify, told(mutations))
}

// increment increments the generation and stores targets under it. Every generation has a row: the
// changes of a generation without one are forgotten. When the row of the generation is missing, the
// insertion fails.
func (s session) increment(ctx context.Context, m mutation, dialect Dialect) error {
	targets := slices.Concat(m.Targets, m.Renamed)
	err := s.later(ctx, nil, `UPDATE svc_generation SET value = value + 1 WHERE id = 1`)
	for from := 0; from < len(targets) && err == nil; {
		rows := dialect.rowsAtOnce(len(targets) - from)
		args := changeArgs(from, len(m.Targets), targets[from:from+rows])
		err = s.later(ctx, nil, insertChanges(rows), args...)
		from += rows
	}
	return err
}

// forget deletes the changes of old generations.
func (s session) forget(ctx context.Context) error {
	return s.later(ctx, nil, `DELETE FROM svc_changes WHERE generation <= (`+selectGeneration+`) - $1
		AND generation < (SELECT MIN(generation) FROM svc_changes) + $2`, remembered, forgotten)
}

// rowsAtOnce returns how many of n rows to write with one statement. It uses few sizes, because
// each size is a prepared statement of its own.
func (d Dialect) rowsAtOnce(n int) int {
	for size := cmp.Or(d.Rows, usualRows); size > 1; size /= 4 {
		if n >= size {
			return size
		}
	}
	return 1
}

// insertChanges inserts rows under the current generation, which the statement reads itself.
func insertChanges(rows int) string {
	return `INSERT INTO svc_changes
		(generation, position, kind, id, scope, owner, holder_kind, holder_id, renamed) VALUES ` +
		values(rows, changeColumns, "("+selectGeneration+"), ")
}

// values returns the VALUES of rows to insert: parameters, and begin in front of each row.
func values(rows, columns int, begin string) string {
	var b strings.Builder
	for row := range rows {
		before := "(" + begin
		for column := range columns {
			b.WriteString(before + "$" + strconv.Itoa(1+row*columns+column))
			before = ", "
		}
		b.WriteString("), ")
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// changeArgs returns the parameters of targets from a position on. From plain on they are renamed.
func changeArgs(position, plain int, targets []svc.Target) (args []any) {
	for i, t := range targets {
		args = append(args, position+i, t.Kind, t.ID, t.Scope, t.Owner, t.Holder.Kind, t.Holder.ID,
			flag(position+i >= plain))
	}
	return args
}

// Changes implements [svc.ChangeStore]. The follower of a Service may get what the Store has heard,
// which may lack the latest commits. All other callers get the answer of the database.
func (s *Store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	call := changefeed.Of(ctx)
	if call == nil {
		changes, err := s.db.reading().changes(ctx, since)
		return changes, s.fault(ctx, "read changes", err)
	}
	if changes, ok := s.heard.since(since); ok {
		return changes, nil
	}
	moved := func(int64) {}
	if s.polled != nil {
		s.polled.see(ctx)
		newer, _ := s.heard.look(since)
		if at, still := s.polled.still(since); still && !newer {
			call.AsOf = at
			return svc.StoreChanges{Generation: since}, nil
		}
		moved = s.polled.asks()
	}
	answered := s.heard.asks()
	changes, err := s.questions().changes(ctx, since)
	if err == nil {
		answered()
		moved(changes.Generation)
	}
	return changes, s.fault(ctx, "read changes", err)
}

// questions returns the session for the questions of followers.
func (s *Store) questions() session {
	if s.asking != nil {
		return s.asking.reading()
	}
	return s.db.reading()
}

func (s session) changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	var changes svc.StoreChanges
	last, rows := since, 0
	err := each(ctx, s, func(row scanner) (enough bool, err error) {
		var change changeRow
		err = row.Scan(change.columns(&changes.Generation)...)
		if rows++; err != nil || change.generation == nil {
			return false, err
		}
		if gap := *change.generation - last; gap != 0 && gap != 1 {
			return true, nil
		}
		last = *change.generation
		switch target := change.target(); {
		case *change.renamed != 0:
			changes.Renamed = append(changes.Renamed, target)
		case target.Kind != "":
			changes.Targets = append(changes.Targets, target)
		}
		return false, nil
	}, `SELECT g.value, c.generation, c.kind, c.id, c.scope, c.owner, c.holder_kind, c.holder_id,
		c.renamed FROM svc_generation g LEFT JOIN svc_changes c ON c.generation > $1
		WHERE g.id = 1 ORDER BY c.generation, c.position`, since)
	if err == nil && rows == 0 {
		err = errNoGeneration
	}
	if err != nil {
		return svc.StoreChanges{}, err
	}
	if last != changes.Generation {
		return svc.StoreChanges{Generation: changes.Generation, Reset: true}, nil
	}
	return changes, nil
}

// changeRow holds the columns of a change. All are null when the join found none.
type changeRow struct {
	generation, renamed                          *int64
	kind, id, scope, owner, holderKind, holderID *string
}

func (r *changeRow) columns(generation *int64) []any {
	return []any{generation, &r.generation, &r.kind, &r.id, &r.scope, &r.owner,
		&r.holderKind, &r.holderID, &r.renamed}
}

func (r *changeRow) target() svc.Target {
	return svc.Target{
		Kind: svc.TargetKind(*r.kind), ID: *r.id, Scope: svc.Scope(*r.scope), Owner: *r.owner,
		Holder: svc.Identity{Kind: svc.Kind(*r.holderKind), ID: *r.holderID},
	}
}

const selectGeneration = `SELECT value FROM svc_generation WHERE id = 1`

// AwaitChange implements [svc.ChangeStore]. Commits of this Store wake it at once, commits of other
// processes through [Store.Hear] or [Store.Wake]. While the Store listens, it asks the database
// only when no follower has asked it lately.
func (s *Store) AwaitChange(ctx context.Context, since int64) error {
	if s.polled != nil {
		return s.awaitPoll(ctx, since)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		next := s.news.next() // before the read, so that a commit after the read wakes this call
		newer, sure := s.heard.look(since)
		if !sure {
			generation, err := one(ctx, s.questions(), scanNumber, selectGeneration)
			newer = err == nil && generation != since
		}
		switch {
		case ctx.Err() != nil:
			return s.fault(ctx, "await a change", ctx.Err())
		case newer:
			return nil
		}
		select {
		case <-ctx.Done():
			return s.fault(ctx, "await a change", ctx.Err())
		case <-next:
			if sure {
				continue // it may be told of what the caller knows
			}
		case <-late.C:
		}
		return nil
	}
}

// Look implements [svc.FreshnessStore]. Package store/sqlite has a cheap look, other databases have
// none.
func (s *Store) Look(context.Context) (uint64, error) { return 0, nil }

// Wake ends every [Store.AwaitChange] that waits. Call it when another process may have committed,
// unless the notifications reach [Store.Hear]. A false alarm does no harm.
func (s *Store) Wake() { s.news.tell() }

func scanNumber(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// broadcast wakes any number of listeners at once. Its zero value is ready to use.
type broadcast struct {
	mu      sync.Mutex
	channel chan struct{}
}

// next returns a channel that the next tell closes.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.channel == nil {
		b.channel = make(chan struct{})
	}
	return b.channel
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.channel != nil {
		close(b.channel)
		b.channel = nil
	}
}
