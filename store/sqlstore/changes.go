package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/extsvc/svc"
)

const (
	remembered  = 10_000 // how many generations are remembered
	forgetEvery = 256    // how many mutations of a Store there are between looks for older ones
	forgotten   = 1024   // how many generations one look forgets at most

	patience      = 500 * time.Millisecond // how long AwaitChange waits
	usualRows     = 64                     // what Dialect.Rows means when it is 0
	changeColumns = 7                      // how many parameters a row has
)

var errNoGeneration = errors.New("the row of the generation is gone")

// change runs fn, which changes target, in a transaction: see changeMany.
func (s *Store) change(ctx context.Context, doing string, target svc.Target, fn work) error {
	return s.changeMany(ctx, doing, func(ctx context.Context, tx session) ([]svc.Target, error) {
		return []svc.Target{target}, fn(ctx, tx)
	})
}

// changeMany runs fn in a transaction, counts the generation up and leaves what fn changed, last: whoever sees the new
// generation sees what fn wrote, and writers wait for each other only at the end. Nothing is written when fn fails or panics, or
// returns errUnchanged.
func (s *Store) changeMany(ctx context.Context, doing string, fn func(ctx context.Context, tx session) ([]svc.Target, error)) error {
	err := s.transact(ctx, doing, func(ctx context.Context, tx session) error {
		targets, err := fn(ctx, tx)
		if err == nil {
			err = tx.leave(ctx, targets, s.dialect)
		}
		if err == nil && s.mutations.Add(1)%forgetEvery == 1 {
			err = tx.forget(ctx)
		}
		if err == nil && s.dialect.Notify != "" {
			_, err = tx.exec(ctx, s.dialect.Notify)
		}
		return err
	})
	if err == nil {
		s.news.tell()
	}
	return err
}

// leave counts the generation up and keeps the targets under it. Every generation has a row, so that one without is known to
// be an older program's, or forgotten.
func (s session) leave(ctx context.Context, targets []svc.Target, dialect Dialect) error {
	if err := s.touch(ctx, `UPDATE svc_generation SET value = value + 1 WHERE id = 1`); err != nil {
		return err
	}
	for from := 0; from < len(targets); {
		rows := dialect.rowsAtOnce(len(targets) - from)
		if _, err := s.exec(ctx, insertChanges(rows), changeArgs(from, targets[from:from+rows])...); err != nil {
			return err
		}
		from += rows
	}
	return nil
}

// forget drops changes of old generations.
func (s session) forget(ctx context.Context) error {
	_, err := s.exec(ctx, `DELETE FROM svc_changes WHERE generation <= (`+selectGeneration+`) - $1
		AND generation < (SELECT MIN(generation) FROM svc_changes) + $2`, remembered, forgotten)
	return err
}

// rowsAtOnce returns how many of n rows to write with one statement: of a few sizes, as each is prepared.
func (d Dialect) rowsAtOnce(n int) int {
	for size := cmp.Or(d.Rows, usualRows); size > 1; size /= 4 {
		if n >= size {
			return size
		}
	}
	return 1
}

// insertChanges keeps targets under the generation, which nobody has to read for it.
func insertChanges(rows int) string {
	return `INSERT INTO svc_changes (generation, position, kind, id, scope, owner, holder_kind, holder_id) VALUES ` +
		values(rows, changeColumns, "("+selectGeneration+"), ")
}

// values are those of rows to insert: parameters, behind what begins each row.
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

func changeArgs(position int, targets []svc.Target) (args []any) {
	for i, t := range targets {
		args = append(args, position+i, t.Kind, t.ID, t.Scope, t.Owner, t.Holder.Kind, t.Holder.ID)
	}
	return args
}

// Changes implements [svc.ChangeStore].
func (s *Store) Changes(ctx context.Context, since int64) (svc.Changes, error) {
	var changes svc.Changes
	last, rows := since, 0
	err := each(ctx, s.db.reading(), func(row scanner) (enough bool, err error) {
		var change changeRow
		err = row.Scan(change.columns(&changes.Generation)...)
		if rows++; err != nil || change.generation == nil {
			return false, err
		}
		if gap := *change.generation - last; gap != 0 && gap != 1 {
			return true, nil
		}
		last = *change.generation
		if target := change.target(); target.Kind != "" {
			changes.Targets = append(changes.Targets, target)
		}
		return false, nil
	}, `SELECT g.value, c.generation, c.kind, c.id, c.scope, c.owner, c.holder_kind, c.holder_id
		FROM svc_generation g LEFT JOIN svc_changes c ON c.generation > $1
		WHERE g.id = 1 ORDER BY c.generation, c.position`, since)
	if err == nil && rows == 0 {
		err = errNoGeneration
	}
	if err != nil {
		return svc.Changes{}, s.fault(ctx, "read changes", err)
	}
	if last != changes.Generation {
		return svc.Changes{Generation: changes.Generation, Reset: true}, nil
	}
	return changes, nil
}

// changeRow is the columns of a change, all null where a join found none.
type changeRow struct {
	generation                                   *int64
	kind, id, scope, owner, holderKind, holderID *string
}

func (r *changeRow) columns(generation *int64) []any {
	return []any{generation, &r.generation, &r.kind, &r.id, &r.scope, &r.owner, &r.holderKind, &r.holderID}
}

func (r *changeRow) target() svc.Target {
	return svc.Target{
		Kind: svc.TargetKind(*r.kind), ID: *r.id, Scope: svc.Scope(*r.scope), Owner: *r.owner,
		Holder: svc.Identity{Kind: svc.Kind(*r.holderKind), ID: *r.holderID},
	}
}

const selectGeneration = `SELECT value FROM svc_generation WHERE id = 1`

// AwaitChange implements [svc.ChangeStore]. Commits of this Store wake it at once, those of others through [Store.Wake].
func (s *Store) AwaitChange(ctx context.Context, since int64) error {
	next := s.news.next() // before the read: what is committed after it is heard
	generation, err := one(ctx, s.db.reading(), scanNumber, selectGeneration)
	if ctx.Err() != nil {
		return s.fault(ctx, "await a change", ctx.Err())
	}
	if err == nil && generation != since {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return s.fault(ctx, "await a change", ctx.Err())
	case <-next:
	case <-late.C:
	}
	return nil
}

// Wake ends every [Store.AwaitChange] that waits. It is for whoever hears that another process has committed; what it heard
// need not be true.
func (s *Store) Wake() { s.news.tell() }

func scanNumber(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// broadcast tells any number of listeners at once. Its zero value works.
type broadcast struct {
	mu      sync.Mutex
	channel chan struct{}
}

// next returns what is closed when somebody tells.
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
