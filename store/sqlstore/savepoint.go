package sqlstore

import (
	"context"
	"fmt"
)

// transactionLost is an error after which nothing of a transaction is left: the database has rolled back all of it. What would
// be written then would be a transaction of its own.
type transactionLost struct{ error }

func (e transactionLost) Unwrap() error { return e.error }

// savepoint runs fn so that tx holds nothing of it when it fails or panics.
func savepoint(ctx context.Context, tx session, fn work) error {
	if _, err := tx.exec(ctx, `SAVEPOINT svc`); err != nil {
		return transactionLost{err}
	}
	returned := false
	defer func() {
		if !returned {
			_ = tx.undo(ctx) // whoever recovers ends the transaction
		}
	}()
	err := fn(ctx, tx)
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

// undo goes back to the savepoint, though ctx may have ended.
func (s session) undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if _, err := s.exec(ctx, `ROLLBACK TO SAVEPOINT svc`); err != nil {
		return err
	}
	_, err := s.exec(ctx, `RELEASE SAVEPOINT svc`)
	return err
}

// lostBy says that a transaction was lost, and by which fault of the database.
func lostBy(err, lost error) error {
	if isOutcome(err) {
		return transactionLost{lost}
	}
	return transactionLost{fmt.Errorf("%w (and the transaction is lost: %w)", err, lost)}
}

// unguarded runs fn alone in a transaction, which ends with it.
func unguarded(ctx context.Context, tx session, fn work) error { return fn(ctx, tx) }
