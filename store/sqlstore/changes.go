package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
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

	patience  = 500 * time.Millisecond // the wait of AwaitChange
	usualRows = 64                     // the default of Dialect.Rows
)

var errNoGeneration = errors.New(
	"the row of table svc_generation is missing: restore the tables from a backup")

// change is mutate for one target.
func (s *Store) change(ctx context.Context, doing string, target svc.Target, fn work) error {
	return s.mutate(ctx, doing, func(ctx context.Context, tx session, m *mutation) error {
		m.Targets = []svc.Target{target}
		return fn(ctx, tx)
	})
}

// mutation is what one mutation changed, as Changes then reports it.
type mutation struct {
	Targets []svc.Target `json:",omitempty"`
	Renamed []svc.Target `json:",omitempty"`
}

// add adds what a later mutation changed.
func (m *mutation) add(later mutation) {
	for _, target := range later.Targets {
		if target.Kind != "" { // what no cache holds
			m.Targets = append(m.Targets, target)
		}
	}
	m.Renamed = append(m.Renamed, later.Renamed...)
}

// mutate runs fn, which says in m what it changes, in a transaction. Then it increments the
// generation and records m. This order has two effects: a reader of the new generation sees what fn
// wrote, and writers wait for each other only at the end. Inside Atomically that is the end of fn of
// Atomically. When fn fails, panics or returns errUnchanged, the transaction writes nothing.
func (s *Store) mutate(
	ctx context.Context, doing string,
	fn func(ctx context.Context, tx session, m *mutation) error,
) error {
	err := s.transact(ctx, doing, func(ctx context.Context, tx session) error {
		var m mutation
		if err := fn(ctx, tx, &m); err != nil {
			return err
		}
		if tx.changed != nil {
			*tx.changed = append(*tx.changed, m)
			return nil
		}
		return s.record(ctx, tx, m)
	})
	if err == nil {
		s.committed()
	}
	return err
}

// committed wakes the callers that wait for a change, in this process and in others.
func (s *Store) committed() {
	s.news.tell()
	if s.dialect.Notify != "" && s.write != nil {
		// Without it, other processes notice within a second.
		s.limiter.after(func() { _ = s.tell() })
	}
}

// record raises the generation for each mutation and stores what it changed. All statements may
// wait for the commit, so that no other writer waits for answers to this one.
func (s *Store) record(ctx context.Context, tx session, mutations ...mutation) (err error) {
	for _, m := range mutations {
		if err == nil {
			err = tx.feed(ctx, s.dialect, m)
		}
	}
	if s.mutations.Add(1)%forgetEvery == 1 && err == nil {
		err = tx.forget(ctx, s.dialect)
	}
	if s.dialect.Notify == "" || s.write != nil || err != nil {
		return err
	}
	return tx.later(ctx, nil, s.dialect.Notify) // nobody else knows when the host commits
}

// forget deletes old changes. It waits for nobody who deletes them as well.
func (s session) forget(ctx context.Context, dialect Dialect) error {
	oldest := `SELECT seq FROM svc_changefeed
		WHERE seq <= (SELECT MAX(seq) FROM svc_changefeed) - $1 ORDER BY seq LIMIT 0 + $2`
	if !dialect.OneWriter {
		oldest += ` FOR UPDATE SKIP LOCKED`
	}
	return s.later(ctx, nil, `DELETE FROM svc_changefeed WHERE seq IN (`+oldest+`)`,
		remembered, forgotten)
}

// rowsAtOnce returns how many of n rows to write with one statement. It uses few sizes, because
// each size is its own prepared statement.
func (d Dialect) rowsAtOnce(n int) int {
	for size := cmp.Or(d.Rows, usualRows); size > 1; size /= 4 {
		if n >= size {
			return size
		}
	}
	return 1
}

// values returns rows of parameters: ($1, $2), ($3, $4).
func values(rows, columns int) string {
	var b strings.Builder
	for row := range rows {
		before := "("
		for column := range columns {
			b.WriteString(before + "$" + strconv.Itoa(1+row*columns+column))
			before = ", "
		}
		b.WriteString("), ")
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// Changes implements [svc.ChangeStore]. The follower of a Service may get the answer of a [Poll].
// All other callers get that of the database.
//
// With many writers, an answer may repeat changes that the state of since has, unless a call of
// Changes of this Store has returned since.
func (s *Store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	call := changefeed.Of(ctx)
	if call == nil {
		changes, err := s.changes(ctx, s.db.reading(), since)
		return changes, s.fault(ctx, "read changes", err)
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
	changes, err := s.changes(ctx, s.questions(), since)
	if err == nil {
		answered(changes.Generation)
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

// changes returns what was committed after the state of a generation, in the order of the commits
// as far as anybody could tell: a change has its place before its commit, and behind all that were
// committed when it began.
func (s *Store) changes(ctx context.Context, tx session, since int64) (svc.StoreChanges, error) {
	from := state{generation: since, lanes: []int64{since}}
	var latest state
	if !s.dialect.OneWriter {
		from, latest = s.states.before(since), s.states.before(math.MaxInt64)
	}
	join, parameter := s.dialect.behind(from)
	var now state
	var changed mutation
	var count int64
	err := each(ctx, tx, func(row scanner) (enough bool, err error) {
		var lane, value int64
		var text []byte
		if err = row.Scan(&lane, &value, &text); err != nil {
			return false, err
		}
		if now.set(lane, value); text == nil {
			return false, nil
		}
		var m mutation
		err = json.Unmarshal(text, &m)
		changed.add(m)
		count++
		return false, err
	}, `SELECT g.id, g.value, f.changed FROM svc_generation g `+join+` ORDER BY f.seq`, parameter)
	if err == nil && len(now.lanes) == 0 {
		err = errNoGeneration
	}
	if err != nil {
		return svc.StoreChanges{}, err
	}
	if !s.learn(now, from, latest) || since < from.generation || since > now.generation ||
		count != now.generation-from.generation {
		return svc.StoreChanges{Generation: now.generation, Reset: true}, nil
	}
	return svc.StoreChanges{
		Generation: now.generation, Targets: changed.Targets, Renamed: changed.Renamed,
	}, nil
}

// learn remembers a state that was read. It returns false when the database has gone back: the
// state lacks some of the one that the changes are from, or of the latest one
// that was known before.
func (s *Store) learn(now, from, latest state) bool {
	switch {
	case s.dialect.OneWriter: // since says it all
		return true
	case s.write == nil: // with writes of the transaction: nobody else has this state
		return now.has(from)
	}
	return s.states.add(now, latest)
}

// AwaitChange implements [svc.ChangeStore]. Commits of this Store wake it immediately, commits of
// other processes through [Store.Hear] or [Store.Wake]. While the Store listens, it asks the
// database only when no follower has asked it lately.
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
			generation, err := one(ctx, s.questions(), scanValue[int64], selectGeneration)
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

// Generation returns the generation that Changes would return.
func (s *Store) Generation(ctx context.Context) (int64, error) {
	generation, err := one(ctx, s.db.reading(), scanValue[int64], selectGeneration)
	if errors.Is(err, svc.ErrNotFound) {
		err = errNoGeneration
	}
	return generation, s.fault(ctx, "read the generation", err)
}

// Look implements [svc.FreshnessStore]. Package store/sqlite has a cheap look, other databases have
// none.
func (s *Store) Look(context.Context) (uint64, error) { return 0, nil }

// Wake ends every [Store.AwaitChange] that waits. Call it when another process may have committed,
// unless the notifications reach [Store.Hear]. A false alarm does no harm.
func (s *Store) Wake() { s.news.tell() }

// broadcast wakes any number of listeners together. Its zero value is ready to use.
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
