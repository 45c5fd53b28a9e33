package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/extsvc/svc"
)

const changeAccess = `LOCK TABLE svc_access_lock IN EXCLUSIVE MODE`

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
// The lock on access is that of a table without rows. Its queue is fair: a change of access waits
// for those who rely on it, and others wait behind it. It writes nothing.
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
	if locks.ChangeAccess {
		err = s.lockAccess(ctx, dialect.Silence)
	}
	take(locks.RelyOnAccess, `LOCK TABLE svc_access_lock IN ROW SHARE MODE`)
	take(locks.Holder != svc.Identity{}, `INSERT INTO svc_key_holders (kind, id) VALUES ($1, $2)
		ON CONFLICT (kind, id) DO UPDATE SET id = excluded.id`, locks.Holder.Kind, locks.Holder.ID)
	take(locks.RelyOnKey != "", `SELECT id FROM svc_api_keys WHERE id = $1 AND revoked_at IS NULL
		FOR SHARE`, locks.RelyOnKey)
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

// lockAccess locks access to change it. The server ends its wait a moment before the client would:
// so a lock is told from a silent server. A transaction of the host keeps its own limit.
func (s session) lockAccess(ctx context.Context, longest time.Duration) error {
	limited := s.host == nil && longest > 0 && !hasTime(ctx)
	if limited {
		set := fmt.Sprintf(`SET LOCAL lock_timeout = %d`, longest.Milliseconds()*15/16)
		if err := s.later(ctx, nil, set); err != nil {
			return err
		}
	}
	_, err := s.exec(ctx, changeAccess)
	switch {
	case sqlState(err) == lockNotAvailable:
		return &svc.Error{
			Code: svc.CodeUnavailable, Message: "another transaction is changing access: try again", Err: err,
		}
	case err != nil || !limited:
		return err
	}
	return s.later(ctx, nil, `SET LOCAL lock_timeout TO DEFAULT`)
}

// impatience is how long a change of a key waits for the key before others must wait for it.
const impatience = 100 * time.Millisecond

// insist runs fn, which locks keys to change them. PostgreSQL lets transactions share a row while a
// writer waits for it: if they overlap, for ever. Those that rely on a key rely on access before. So
// while fn waits for long, a lock on access keeps others out, whether or not it is granted.
func (s *Store) insist(ctx context.Context, tx session, fn func() error) error {
	if tx.pool != nil && !s.dialect.OneWriter {
		ctx, end := context.WithCancel(ctx)
		defer end()
		defer time.AfterFunc(impatience, func() { tx.pool.keepOut(ctx) }).Stop()
	}
	return fn()
}

// keepOut waits for the lock on access, and holds it until ctx ends.
func (p *pool) keepOut(ctx context.Context) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return // the change of the key may succeed without it
	}
	defer tx.Rollback() // it writes nothing
	if _, err := tx.ExecContext(ctx, p.schema.qualify(changeAccess)); err == nil {
		<-ctx.Done()
	}
}

// lock writes the row with that name, which makes other lockers of it wait, in every database. The
// next statement that needs an answer has the lock.
func (s session) lock(ctx context.Context, name string) error {
	query := `UPDATE svc_locks SET name = name WHERE name = '` + name + `'`
	return s.later(ctx, func(rows int64) error {
		if rows == 0 {
			return errors.New("a row that the migrations made is missing, " +
				"restore it from a backup; the statement that needs it: " + query)
		}
		return nil
	}, query)
}
