package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// proveOpen fails when the transaction of a host has ended without the host's knowledge: SQLite's
// SAVEPOINT would begin another one, and its RELEASE commit that. Only within a transaction, BEGIN
// fails and says so.
func (s session) proveOpen(ctx context.Context) error {
	switch _, err := s.exec(ctx, `BEGIN`); {
	case err == nil:
		_, err = s.exec(ctx, `ROLLBACK`)
		return errors.Join(errRolledBack, err)
	case !strings.Contains(err.Error(), "within a transaction"):
		return err
	}
	return nil
}

var errRolledBack = errors.New("the transaction has ended: an earlier statement rolled it back")

// unguarded runs fn without a savepoint, for a transaction that fn has to itself.
func unguarded(ctx context.Context, tx session, fn work) error { return fn(ctx, tx) }
