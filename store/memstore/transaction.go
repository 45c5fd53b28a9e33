package memstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// Atomically implements [svc.TransactionStore]. Everybody else waits until fn returns.
func (s *Store) Atomically(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	undo, done := s.begin(), false
	defer func() {
		if !done {
			undo.run()
		}
	}()
	err := fn(ctx, inTx{&Store{mu: held{}, undo: undo, rows: s.rows}})
	if err == nil {
		err = ctx.Err()
	}
	done = err == nil
	return err
}

// journal is how to take back what calls have written.
type journal struct{ steps []func() }

func (j *journal) add(step func()) { j.steps = append(j.steps, step) }

// run takes back what was written, the newest first.
func (j *journal) run() {
	for _, step := range slices.Backward(j.steps) {
		step()
	}
}

// begin returns a journal that leads back to what is there now. What it leads back from within a transaction, that
// transaction leads back from, too.
func (s *Store) begin() *journal {
	j := &journal{}
	generation, changes, channels, audit, latest := s.generation, s.changes, s.channels, s.audit, s.auditLatest
	j.add(func() {
		s.generation, s.changes, s.channels, s.audit, s.auditLatest = generation, changes, channels, audit, latest
	})
	if s.undo != nil {
		s.undo.add(j.run)
	}
	return j
}

// put writes a row.
func put[K comparable, R any](s *Store, rows map[K]R, key K, row R) {
	remember(s.undo, rows, key)
	rows[key] = row
}

// drop deletes a row.
func drop[K comparable, R any](s *Store, rows map[K]R, key K) {
	remember(s.undo, rows, key)
	delete(rows, key)
}

func remember[K comparable, R any](j *journal, rows map[K]R, key K) {
	if j == nil {
		return
	}
	was, there := rows[key]
	j.add(func() {
		if there {
			rows[key] = was
		} else {
			delete(rows, key)
		}
	})
}

// held is the lock of a Store whose caller has locked it.
type held struct{}

func (held) Lock()   {}
func (held) Unlock() {}

// inTx is a Store without what makes no sense in a transaction.
type inTx struct{ *Store }

var errInTx = errors.New("not in a transaction: ask the store that it belongs to")

func (inTx) AwaitChange(context.Context, int64) error { return errInTx }

func (inTx) ClaimEvents(context.Context, time.Time, time.Time, int) ([]svc.Event, error) {
	return nil, errInTx
}
