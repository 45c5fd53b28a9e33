package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
)

// pool holds a database and its prepared statements, each once. With a schema it holds none: the
// driver keeps some for each connection.
type pool struct {
	db      *sql.DB
	silence *answerLimit // limits the waits for the database; nil: no limit
	most    func() int   // connections
	fair    func() *fairqueue.Queue
	store   string // the name of the Store in the round
	shared  bool   // other Stores are in the round, so single statements take turns as well
	schema  schema

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
	wanted   []string // queries that ran in a transaction before the pool had prepared them
}

func newPool(db *sql.DB, silence *answerLimit, schema schema) *pool {
	p := &pool{db: db, silence: silence, schema: schema, prepared: map[string]*sql.Stmt{}}
	p.most = sync.OnceValue(func() int {
		return cmp.Or(db.Stats().MaxOpenConnections, math.MaxInt16)
	})
	p.fair = sync.OnceValue(func() *fairqueue.Queue {
		return fairqueue.New(fairqueue.Rules{Turns: p.most()})
	})
	return p
}

// in returns a pool of the same connections for the tables of another schema, which has its own
// statements.
func (p *pool) in(schema schema) *pool { return newPool(p.db, p.silence, schema) }

// unlimited returns a pool of the same connections without a limit of time, whose calls do not wait for
// those of p: for a migration or a copy.
func (p *pool) unlimited() *pool { return newPool(p.db, nil, p.schema) }

// take makes the calls of p take turns of a round.
func (p *pool) take(round *fairqueue.Queue, store string) *pool {
	p.fair, p.store, p.shared = func() *fairqueue.Queue { return round }, store, true
	return p
}

// statement returns a prepared query, or nil when it is not prepared yet.
func (p *pool) statement(query string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prepared[query]
}

// prepare returns a prepared query. It takes a connection, which may be the only one: a caller that
// holds a connection must not call it.
func (p *pool) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := p.statement(query); stmt != nil {
		return stmt, nil
	}
	stmt, err := p.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if earlier := p.prepared[query]; earlier != nil {
		// Close waits for the statement that now uses the connection, and that one may wait for us.
		go stmt.Close()
		return earlier, nil
	}
	p.prepared[query] = stmt
	return stmt, nil
}

func (p *pool) want(query string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.wanted, query) {
		p.wanted = append(p.wanted, query)
	}
}

// prepareWanted prepares the queries that earlier transactions ran unprepared.
func (p *pool) prepareWanted(ctx context.Context) error {
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	for _, query := range wanted {
		if _, err := p.prepare(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a transaction. Its statements use the pool's prepared ones where those exist.
func (p *pool) begin(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	if err := p.prepareWanted(ctx); err != nil {
		return nil, err
	}
	return p.db.BeginTx(ctx, options)
}

// commitGrace is how long a commit goes on after its caller has left: otherwise nobody learns its
// outcome. [Dialect.Silence] may end it earlier.
const commitGrace = 5 * time.Second

// transact runs fn in a transaction. It rolls back when fn fails or panics, or when ctx has ended
// before the commit.
func (p *pool) transact(ctx context.Context, options *sql.TxOptions, fn work) error {
	if err := ctx.Err(); err != nil {
		return err // own, made below, would end only a moment later
	}
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ends := context.AfterFunc(ctx, end)
	defer ends()
	done, err := p.queueUp(own, !options.ReadOnly)
	if err != nil {
		return err
	}
	defer done()
	own, h, err := p.silence.hear(own)
	if err != nil {
		return err
	}
	defer h.end()
	later := &Later{Caller: ctx}
	tx, err := p.begin(maybeLater(own, later), options)
	if err != nil {
		return h.pause(err)
	}
	h.rest()
	defer tx.Rollback() // does nothing after the commit; its error would only hide the cause
	s := p.within(tx, h)
	s.lazy = later.Taken
	if err := fn(own, s); err != nil {
		return err
	}
	if !options.ReadOnly {
		if !ends() {
			return ctx.Err()
		}
		defer context.AfterFunc(ctx, func() { time.AfterFunc(commitGrace, end) })()
	}
	h.resume()
	return h.pause(tx.Commit())
}

// pools is the [database] of a Store that uses its own connections.
type pools struct {
	write, read *pool
	queue       *queue // nil: each mutation has its own transaction
	dialect     Dialect
}

var (
	readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	oneState      = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
)

func (p *pools) reading() session { return p.read.reading() }

func (p *pools) snapshot(ctx context.Context, fn work) error {
	return p.read.transact(ctx, oneState, fn)
}

// tries is how often a transaction runs when the database keeps rolling it back because of others.
const tries = 5

// transact runs fn again when the database rolled the transaction back because of others. After any
// other error of a commit it does not try again: the outcome is unknown.
func (p *pools) transact(ctx context.Context, fn work) error {
	once := func() error { return p.write.transact(ctx, readCommitted, fn) }
	if p.queue != nil {
		once = func() error { return p.queue.do(ctx, fn) }
	}
	for try := 1; ; try++ {
		err := once()
		if err == nil || try == tries || !errors.Is(p.dialect.classify(err), svc.ErrChanged) {
			return err
		}
		if wait(ctx, time.Duration(try)*(time.Millisecond+rand.N(9*time.Millisecond))) != nil {
			return err
		}
	}
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
