package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/extsvc/svc/internal/batching"
)

// The most jobs that share one transaction. While other Stores of the pool's round are busy, they
// are fewer: a transaction of many takes long, and its callers return all together.
const (
	batchMost    = 64
	batchCrowded = 8
)

// queue makes concurrent mutations share one transaction, and so one commit.
type queue struct {
	pool    *pool
	batches *batching.Batches[*job]
}

// job is one mutation in the queue.
type job struct {
	ctx    context.Context
	fn     work
	err    error
	failed any // the value of a panic of fn
}

func newQueue(p *pool) *queue {
	q := &queue{pool: p}
	q.batches = batching.New(q.run, nil)
	return q
}

// do runs fn in a transaction that fn may share with others, and returns when its outcome is known.
// The end of ctx interrupts no statement, but none begins after it, and the work of fn is rolled
// back.
func (q *queue) do(ctx context.Context, fn work) error {
	j := &job{ctx: ctx, fn: fn}
	err := q.batches.Do(ctx, j)
	if j.failed != nil {
		panic(j.failed)
	}
	return cmp.Or(err, j.err)
}

// begin starts a transaction. After a failure it tries once more: in SQLite, a process that writes
// without pause may block others until their timeout.
func (q *queue) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := q.pool.begin(ctx, readCommitted)
	if err != nil {
		tx, err = q.pool.begin(ctx, readCommitted)
	}
	return tx, err
}

// run does jobs in one transaction, whose error is that of all of them: a job may have been refused
// because of rows that another job wrote.
func (q *queue) run(ctx context.Context, take func(most int) []*job) error {
	done, err := q.pool.queueUp(withoutHurry(ctx), true)
	if err != nil {
		return err
	}
	defer done()
	begin, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	waits := context.AfterFunc(ctx, end)
	tx, err := q.begin(begin)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit; its error would only hide the cause
	most := batchMost
	if q.pool.crowded() {
		most = batchCrowded
	}
	jobs := take(most)
	waits() // from here on nothing interrupts the transaction
	do, wrote := savepoint, false
	if len(jobs) == 1 {
		do = unguarded
	}
	shared := q.pool.within(tx, nil)
	for _, j := range jobs {
		j.err = do(context.WithoutCancel(j.ctx), shared, j.call)
		if _, lost := errors.AsType[transactionLost](j.err); lost {
			return j.err
		}
		wrote = wrote || j.err == nil
	}
	if !wrote {
		return nil
	}
	return tx.Commit()
}

var errPanicked = errors.New("the function panicked")

// call runs the job's function. It fails when the caller's context has ended by the time the
// function returns.
func (j *job) call(ctx context.Context, tx session) (err error) {
	defer func() {
		if j.failed = recover(); j.failed != nil {
			err = errPanicked
		}
	}()
	tx.caller = j.ctx
	if err := j.fn(ctx, tx); err != nil {
		return err
	}
	return j.ctx.Err()
}
