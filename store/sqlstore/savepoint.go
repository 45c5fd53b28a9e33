package sqlstore

import (
	"context"
	"fmt"
)

// transactionLost is an error after which the database has rolled back the whole transaction. A
// later statement would run in its own transaction.
type transactionLost struct{ error }

func (e transactionLost) Unwrap() error { return e.error }

// savepoint runs fn inside a savepoint. When fn fails or panics, tx holds nothing of it.
func savepoint(ctx context.Context, within session, fn work) error {
	tx := within
	tx.caller = nil // the end of a savepoint does not depend on it
	if _, err := tx.exec(ctx, `SAVEPOINT svc`); err != nil {
		return transactionLost{err}
	}
	returned := false
	defer func() {
		if !returned {
			_ = tx.undo(ctx) // the code that recovers ends the transaction
		}
	}()
	err := fn(ctx, within)
	returned = true
	if err == nil {
		if _, err = tx.exec(ctx, `RELEASE SAVEPOINT svc`); err != nil {
			err = transactionLost{err}
		}
		return err
	}
	if lost := tx.undo(ctx); lost != nil {
		return lostBy(err, lost)
	}
	return err
}

// undo rolls back to the savepoint, even after ctx has ended.
func (s session) undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if _, err := s.exec(ctx, `ROLLBACK TO SAVEPOINT svc`); err != nil {
		return err
	}
	_, err := s.exec(ctx, `RELEASE SAVEPOINT svc`)
	return err
}

// lostBy returns a transactionLost that names the fault of the database.
func lostBy(err, lost error) error {
	if isOutcome(err) {
		return transactionLost{lost}
	}
	return transactionLost{fmt.Errorf("%w (the transaction is lost: %w)", err, lost)}
}

// unguarded runs fn without a savepoint, for a transaction that fn has to itself.
func unguarded(ctx context.Context, tx session, fn work) error { return fn(ctx, tx) }
