package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/extsvc/svc"
)

// pools is the [database] of a Store that uses connections of its own.
type pools struct {
	write, read *pool
	queue       *queue // nil: each mutation has its own transaction
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

// tries is how often a transaction runs when the database keeps rolling it back because of others.
const tries = 5

// transact runs fn again when the database rolled the transaction back because of others. After any
// other error of a commit it does not try again: the outcome is unknown.
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

// wait returns after d, or with an error when ctx ends first.
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
