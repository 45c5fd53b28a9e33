package memstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// Atomically implements [svc.TransactionStore]. All other calls wait until fn returns.
func (s *Store) Atomically(
	ctx context.Context, fn func(ctx context.Context, tx svc.Store) error,
) error {
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
	err := fn(ctx, inTx{&Store{mu: noLock{}, undo: undo, rows: s.rows}})
	if err == nil {
		err = ctx.Err()
	}
	done = err == nil
	return err
}

// Lock implements [svc.TransactionStore]. A transaction locks the whole store.
func (s *Store) Lock(ctx context.Context, _ svc.Locks) error { return ctx.Err() }

// journal holds the steps that undo writes.
type journal struct{ steps []func() }

func (j *journal) add(step func()) { j.steps = append(j.steps, step) }

// run undoes the writes, newest first.
func (j *journal) run() {
	for _, step := range slices.Backward(j.steps) {
		step()
	}
}

// begin returns a journal that restores the present rows. In a transaction the outer journal runs
// it as well.
func (s *Store) begin() *journal {
	j := &journal{}
	generation, changes, channels, audit := s.generation, s.changes, s.channels, s.audit
	j.add(func() {
		s.generation, s.changes, s.channels, s.audit = generation, changes, channels, audit
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

// noLock is the lock of a Store in a transaction, which has locked it already.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// inTx is a Store that refuses the calls that make no sense in a transaction.
type inTx struct{ *Store }

var errInTx = errors.New("not possible in a transaction: call the store outside the transaction")

func (inTx) AwaitChange(context.Context, int64) error { return errInTx }

func (inTx) ClaimEvents(context.Context, time.Time, time.Time, int) ([]svc.Event, error) {
	return nil, errInTx
}
