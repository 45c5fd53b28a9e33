package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/extsvc/svc"
)

// pools is a database of the Store's own.
type pools struct {
	write, read *pool
	queue       *queue // nil: each mutation has a transaction of its own
	dialect     Dialect
}

var (
	readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	oneState      = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
)

func (p *pools) reading() session { return session{pool: p.read, silence: p.read.silence} }

func (p *pools) snapshot(ctx context.Context, fn work) error {
	return p.read.transact(ctx, oneState, fn)
}

// tries is how often a transaction is run that the database rolls back because of others.
const tries = 5

// transact runs fn again when the database rolled the transaction back because of others. An error of a commit that
// means anything else is never tried again: nobody knows its outcome.
func (p *pools) transact(ctx context.Context, fn work) error {
	for try := 1; ; try++ {
		err := p.once(ctx, fn)
		if err == nil || try == tries || !errors.Is(p.dialect.classify(err), svc.ErrChanged) {
			return err
		}
		if wait(ctx, time.Duration(try)*(time.Millisecond+rand.N(9*time.Millisecond))) != nil {
			return err
		}
	}
}

func (p *pools) once(ctx context.Context, fn work) error {
	if p.queue != nil {
		return p.queue.do(ctx, fn)
	}
	return p.write.transact(ctx, readCommitted, fn)
}

// wait returns after a time, or with an error when ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
