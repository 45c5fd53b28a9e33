package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// The most jobs that share one transaction. While other Stores of the pool's round are busy, they
// are fewer: a transaction of many takes long, and its callers return all together.
const (
	batchMost    = 64
	batchCrowded = 8
)

// quiet is how long the leader waits for another job while fewer jobs wait than the last commit
// had. The callers that this commit released are about to bring their next jobs.
const quiet = 50 * time.Microsecond

// queue makes concurrent mutations share one transaction, and so one commit. The first caller
// starts a goroutine, the leader. The leader begins a transaction, takes the jobs that wait by
// then, commits, and repeats until no job waits.
type queue struct {
	pool *pool

	mu      sync.Mutex
	waiting []*job
	leading bool
	met     int                // the number of jobs at the last commit
	abandon context.CancelFunc // ends the leader's wait for the database when all callers have left
}

// job is one mutation in the queue.
type job struct {
	ctx  context.Context
	fn   work
	seen bool // it waited already when the leader began to wait for the database

	done   chan struct{} // closed when the outcome is known
	err    error
	failed any // the value of a panic of fn
}

// do runs fn in a transaction that fn may share with others, and returns when its outcome is known.
// Once fn has begun, the end of ctx does not interrupt it. When ctx has ended by the time fn
// returns, the work of fn is rolled back.
func (q *queue) do(ctx context.Context, fn work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{ctx: ctx, fn: fn, done: make(chan struct{})}
	q.enter(j)
	select {
	case <-j.done:
	case <-ctx.Done():
		if q.leave(j) {
			return ctx.Err()
		}
		<-j.done
	}
	if j.failed != nil {
		panic(j.failed)
	}
	return j.err
}

func (q *queue) enter(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, j)
	if !q.leading {
		q.leading = true
		go q.lead()
	}
}

// leave removes a job from the queue. It returns false when the job has begun.
func (q *queue) leave(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, j)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if len(q.waiting) == 0 && q.abandon != nil {
		q.abandon()
	}
	return true
}

// lead does jobs until no job waits.
func (q *queue) lead() {
	idle := false
	defer func() {
		if !idle { // a job has ended this goroutine: another one takes over
			go q.lead()
		}
	}()
	for q.next() {
	}
	idle = true
}

// next does a batch of jobs and reports whether there may be more.
func (q *queue) next() bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !q.look(cancel) {
		return false
	}
	done, err := q.pool.queueUp(withoutHurry(ctx), true)
	if err != nil {
		return true // all callers have left
	}
	defer done()
	tx, err := q.begin(ctx)
	if err != nil {
		report(q.take(ctx, func(_ int, j *job) bool { return j.seen }), err)
		return true
	}
	defer tx.Rollback() // does nothing after the commit; its error would only hide the cause
	q.gather()
	most := batchMost
	if q.pool.crowded() {
		most = batchCrowded
	}
	if jobs := q.take(ctx, func(n int, _ *job) bool { return n < most }); len(jobs) > 0 {
		q.run(tx, jobs)
	}
	return true
}

// gather lets other goroutines run as long as they bring jobs.
func (q *queue) gather() {
	for seen, came := 0, time.Now(); time.Since(came) < quiet; runtime.Gosched() {
		waiting, met := q.count()
		if waiting >= met {
			return
		}
		if waiting > seen {
			seen, came = waiting, time.Now()
		}
	}
}

func (q *queue) count() (waiting, met int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.met
}

// begin starts a transaction. After a failure it tries once more: in SQLite, a process that writes
// without pause may block others until their timeout.
func (q *queue) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := q.pool.begin(ctx, readCommitted)
	if err != nil && ctx.Err() == nil {
		tx, err = q.pool.begin(ctx, readCommitted)
	}
	return tx, err
}

// look marks the jobs that wait. When there are none, it ends the leadership and returns false.
func (q *queue) look(abandon context.CancelFunc) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = len(q.waiting) > 0
	q.abandon = abandon
	for _, j := range q.waiting {
		j.seen = true
	}
	return q.leading
}

// take removes and returns the jobs that wanted accepts; n is the number of jobs taken before j. It
// takes none when all callers have left: the transaction has ended with them.
func (q *queue) take(ctx context.Context, wanted func(n int, j *job) bool) (jobs []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abandon = nil
	if ctx.Err() != nil {
		return nil
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(j *job) bool {
		if !wanted(len(jobs), j) {
			return false
		}
		jobs = append(jobs, j)
		return true
	})
	return jobs
}

var (
	errEnded = errors.New("another function in the same transaction ended its goroutine: " +
		"try again")
	errPanicked = errors.New("the function panicked")
)

// run does jobs in one transaction. It reports no outcome before the commit: a job may have been
// refused because of rows that another job wrote.
func (q *queue) run(tx *sql.Tx, jobs []*job) {
	err := errEnded
	var done, refused []*job
	defer func() {
		report(append(done, jobs...), err)
		for _, j := range refused {
			report([]*job{j}, cmp.Or(err, j.err))
		}
	}()
	do := savepoint
	if len(jobs) == 1 {
		do = unguarded
	}
	shared := q.pool.within(tx, nil)
	for ; len(jobs) > 0; jobs = jobs[1:] {
		j := jobs[0]
		fault := do(context.WithoutCancel(j.ctx), shared, j.call)
		if _, lost := errors.AsType[transactionLost](fault); lost {
			err = fault
			return
		}
		if j.err = fault; fault == nil {
			done = append(done, j)
		} else {
			refused = append(refused, j)
		}
	}
	if err = nil; len(done) > 0 {
		err = tx.Commit()
	}
	q.mu.Lock()
	q.met = min(batchMost, len(done)+len(refused)+len(q.waiting))
	q.mu.Unlock()
}

// call runs the job's function. It fails when the caller's context has ended by the time the
// function returns.
func (j *job) call(ctx context.Context, tx session) (err error) {
	defer func() {
		if j.failed = recover(); j.failed != nil {
			err = errPanicked
		}
	}()
	if err := j.fn(ctx, tx); err != nil {
		return err
	}
	return j.ctx.Err()
}

// report gives jobs their outcome and releases their callers.
func report(jobs []*job, err error) {
	for _, j := range jobs {
		j.err = err
		close(j.done)
	}
}
