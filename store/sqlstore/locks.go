package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/extsvc/svc"
)

// The locks on access are those of a table without rows, and write nothing. One change of access at
// a time has addToAccess. Those who rely on access do not wait for it, but for changeAccess.
const (
	relyOnAccess = `LOCK TABLE svc_access_lock IN ROW SHARE MODE`
	addToAccess  = `LOCK TABLE svc_access_lock IN SHARE ROW EXCLUSIVE MODE`
	changeAccess = `LOCK TABLE svc_access_lock IN EXCLUSIVE MODE`
)

// Lock implements [svc.TransactionStore].
func (s *Store) Lock(ctx context.Context, locks svc.Locks) error {
	if s.dialect.OneWriter {
		return ctx.Err()
	}
	return s.transact(ctx, "lock", func(ctx context.Context, tx session) error {
		return tx.lockAll(ctx, locks, s.dialect)
	})
}

// lockAll takes locks in the order of [svc.Locks]. No statement needs its answer: the next one that
// needs one has the locks, and sees what was committed before.
//
// With OneWriter the transaction itself is the lock.
func (s session) lockAll(ctx context.Context, locks svc.Locks, dialect Dialect) (err error) {
	if dialect.OneWriter {
		return nil
	}
	take := func(wanted bool, query string, args ...any) {
		if err == nil && wanted {
			err = s.later(ctx, nil, query, args...)
		}
	}
	changes := locks.AddUsers || locks.ChangeAccess
	if s.host != nil && (changes || locks.RelyOnAccess) {
		err = s.seesCommits(ctx)
	}
	if changes && err == nil {
		err = s.lockAccess(ctx, dialect.Silence, !locks.ChangeAccess)
	}
	take(locks.RelyOnAccess, relyOnAccess)
	take(locks.Holder != svc.Identity{}, `INSERT INTO svc_key_holders (kind, id) VALUES ($1, $2)
		ON CONFLICT (kind, id) DO UPDATE SET id = excluded.id WHERE false`, // which only locks it
		locks.Holder.Kind, locks.Holder.ID)
	take(locks.RelyOnKey != "", `SELECT id FROM svc_api_keys WHERE id = $1 AND revoked_at IS NULL
		FOR SHARE`, locks.RelyOnKey)
	return err
}

// seesCommits refuses a transaction of the host whose statements see an old state. A lock on a table
// does not tell it that the state has changed, and it would decide by rights that are gone.
func (s session) seesCommits(ctx context.Context) error {
	level, err := one(ctx, s, scanValue[string], `SELECT current_setting('transaction_isolation')`)
	if err == nil && level != "read committed" && level != "read uncommitted" {
		err = fmt.Errorf("the transaction of the host is %s: begin it as READ COMMITTED", level)
	}
	return err
}

// SQLSTATEs of PostgreSQL.
const (
	lockNotAvailable = "55P03" // the server has ended the wait for a lock
	readOnly         = "25006" // a write in a transaction that may only read, as on a standby
)

// sqlState returns the SQLSTATE of err, or "" if it has none.
func sqlState(err error) string {
	fault, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return ""
	}
	return fault.SQLState()
}

// lockAccess locks access to change it, or only to add to it. The server ends its wait a moment
// before the client would: so a lock differs from a silent server. A transaction of the host keeps
// its own limit.
//
// In the queue for changeAccess, those who rely on access wait behind, even while one of them, such
// as a transaction of the host, makes it long. So it waits in short turns.
func (s session) lockAccess(ctx context.Context, longest time.Duration, adds bool) error {
	if s.host != nil {
		_, err := s.exec(ctx, addToAccess)
		if err == nil && !adds {
			_, err = s.exec(ctx, changeAccess)
		}
		return err
	}
	if *s.access == changeAccess || adds && *s.access == addToAccess {
		return nil // the lock lasts until the end of tx
	}
	if longest = longest * 15 / 16; longest == 0 || hasTime(ctx) {
		longest = longestWait
	}
	end := time.Now().Add(longest)
	err := s.limitLocks(ctx, longest)
	if err == nil && adds {
		if _, err = s.exec(ctx, addToAccess); err == nil {
			*s.access = addToAccess
			return s.unlimitLocks(ctx)
		}
	} else if err == nil {
		err = s.later(ctx, nil, addToAccess)
	}
	if err != nil {
		return lockedByOther(err)
	}
	for {
		granted, err := s.tryChangeAccess(ctx)
		switch {
		case granted:
			*s.access = changeAccess
			return s.unlimitLocks(ctx)
		case err != nil:
			return lockedByOther(err)
		case time.Now().After(end):
			return accessLocked(nil)
		}
		if err := wait(ctx, lockPause); err != nil {
			return err
		}
	}
}

const (
	longestWait = 30 * time.Second // for access, of a large bundle
	// lockTurn is a turn in a wait for changeAccess. Transactions of the Service end within one.
	lockTurn  = 200 * time.Millisecond
	lockPause = 3 * lockTurn // between two turns; those go on who rely on access
)

// tryChangeAccess waits for changeAccess for a turn.
func (s session) tryChangeAccess(ctx context.Context) (granted bool, err error) {
	err = s.later(ctx, nil, `SAVEPOINT locking`)
	if err == nil {
		err = s.limitLocks(ctx, lockTurn)
	}
	if err == nil {
		_, err = s.exec(ctx, changeAccess)
	}
	switch {
	case err == nil:
		return true, s.later(ctx, nil, `RELEASE SAVEPOINT locking`)
	case sqlState(err) != lockNotAvailable:
		return false, err
	}
	if _, undone := s.exec(ctx, `ROLLBACK TO SAVEPOINT locking`); undone != nil {
		return false, err // it has waited for the statement before
	}
	return false, nil
}

// limitLocks limits the waits of the transaction for locks.
func (s session) limitLocks(ctx context.Context, longest time.Duration) error {
	return s.later(ctx, nil, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, longest.Milliseconds()))
}

func (s session) unlimitLocks(ctx context.Context) error {
	return s.later(ctx, nil, `SET LOCAL lock_timeout TO DEFAULT`)
}

func accessLocked(err error) error {
	return &svc.Error{
		Code:    svc.CodeUnavailable,
		Message: "another transaction is changing access: try again",
		Err:     err,
	}
}

// lockedByOther returns the error for err when the server has ended the wait for a lock.
func lockedByOther(err error) error {
	if sqlState(err) == lockNotAvailable {
		return accessLocked(err)
	}
	return err
}

// impatience is how long a change of a key waits for the key before others must wait for it.
const impatience = 100 * time.Millisecond

// insist runs fn, which locks keys to change them. PostgreSQL lets transactions share a row while a
// writer waits for it: if they overlap, for ever. Those that rely on a key rely on access before.
// So while fn waits for long, a lock on access keeps others out, whether or not it is granted.
func (s *Store) insist(ctx context.Context, tx session, fn func() error) error {
	if tx.pool != nil && !s.dialect.OneWriter {
		ctx, end := context.WithCancel(ctx)
		defer end()
		defer time.AfterFunc(impatience, func() { tx.pool.keepOut(ctx) }).Stop()
	}
	return fn()
}

// keepOut waits for the lock on access in turns, and holds it until ctx ends. Without it, the
// change of the key may succeed as well.
func (p *pool) keepOut(ctx context.Context) {
	for ctx.Err() == nil {
		_ = p.transact(ctx, readCommitted, func(ctx context.Context, tx session) error {
			granted, err := tx.tryChangeAccess(ctx)
			if granted {
				<-ctx.Done()
			}
			return cmp.Or(err, errUnchanged)
		})
		_ = wait(ctx, lockPause)
	}
}

// lock writes the row with that name, which makes other lockers of it wait, in every database. The
// next statement that needs an answer has the lock.
func (s session) lock(ctx context.Context, name string) error {
	return s.lockWith(ctx, `UPDATE svc_locks SET name = name WHERE name = '`+name+`'`)
}

// lockInOrder is lock for long queues, where the database has FOR UPDATE. The row stays as it is, so
// that the server keeps the order of those who wait: behind each new version, they would race.
func (s session) lockInOrder(ctx context.Context, name string) error {
	return s.lockWith(ctx, `SELECT name FROM svc_locks WHERE name = '`+name+`' FOR UPDATE`)
}

func (s session) lockWith(ctx context.Context, query string) error {
	return s.later(ctx, func(rows int64) error {
		if rows == 0 {
			return errors.New("a row that the migrations made is missing, " +
				"restore it from a backup; the statement that needs it: " + query)
		}
		return nil
	}, query)
}
