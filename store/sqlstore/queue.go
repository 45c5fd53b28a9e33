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

// batchMost is how many jobs share one transaction at most.
const batchMost = 64

// quiet is how long a leader waits for another job, while fewer wait than there were with the last commit: those whom it
// released are on their way back with their next ones.
const quiet = 50 * time.Microsecond

// queue makes mutations that meet share one transaction, and so one commit. Whoever finds nobody leading starts a goroutine
// that leads: it begins a transaction, takes the jobs that wait by then, commits, and goes on until none waits.
type queue struct {
	pool *pool

	mu      sync.Mutex
	waiting []*job
	leading bool
	met     int                // how many jobs there were with the last commit
	abandon context.CancelFunc // ends the leader's wait for the database, when nobody waits for it any more
}

// job is a mutation that wants to be done.
type job struct {
	ctx  context.Context
	fn   work
	seen bool // was there when the leader began to wait for the database

	done   chan struct{} // closed when it is known what became of it
	err    error
	failed any // what fn panicked with
}

// do has fn run, in a transaction that it may share. It returns when fn's outcome is known: once fn has begun ctx does
// not end it. It is undone when ctx has ended by its end.
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

// leave takes a job out of the queue, unless it has begun.
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

// lead does jobs until none waits.
func (q *queue) lead() {
	idle := false
	defer func() {
		if !idle { // a job has ended this goroutine: somebody has to go on
			go q.lead()
		}
	}()
	for q.next() {
	}
	idle = true
}

// next does a batch of jobs, and reports whether there may be more.
func (q *queue) next() bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !q.look(cancel) {
		return false
	}
	tx, err := q.begin(ctx)
	if err != nil {
		tell(q.refused(ctx), err)
		return true
	}
	defer tx.Rollback() // does nothing after the commit; what it returns would only hide the cause
	q.gather()
	if jobs := q.take(ctx); len(jobs) > 0 {
		q.run(tx, jobs)
	}
	return true
}

// gather lets others run as long as they bring jobs.
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

// begin starts a transaction. When it cannot it tries once more: a process that writes without pause may keep others from
// their turn for as long as SQLite waits.
func (q *queue) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := q.pool.begin(ctx, readCommitted)
	if err != nil && ctx.Err() == nil {
		tx, err = q.pool.begin(ctx, readCommitted)
	}
	return tx, err
}

// look marks the jobs that wait. Where there are none, it ends the leadership.
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

// refused takes the jobs for which the database was asked in vain.
func (q *queue) refused(ctx context.Context) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abandon = nil
	if ctx.Err() != nil {
		return nil // all had left
	}
	var jobs []*job
	q.waiting = slices.DeleteFunc(q.waiting, func(j *job) bool {
		if j.seen {
			jobs = append(jobs, j)
		}
		return j.seen
	})
	return jobs
}

// take takes jobs that can begin now.
func (q *queue) take(ctx context.Context) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abandon = nil
	if ctx.Err() != nil {
		return nil // all had left, and with them went the transaction
	}
	n := min(batchMost, len(q.waiting))
	jobs := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return jobs
}

var (
	errEnded    = errors.New("a function in the same transaction ended its goroutine")
	errPanicked = errors.New("a function panicked")
)

// run does jobs in one transaction. None is told anything before all are committed: what refused one may be what another
// has written.
func (q *queue) run(tx *sql.Tx, jobs []*job) {
	err := errEnded
	var done, refused []*job
	defer func() {
		tell(append(done, jobs...), err)
		for _, j := range refused {
			tell([]*job{j}, cmp.Or(err, j.err))
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

// call runs the job's function, which fails when whoever asked has left by its end.
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

// tell says what became of jobs.
func tell(jobs []*job, err error) {
	for _, j := range jobs {
		j.err = err
		close(j.done)
	}
}
