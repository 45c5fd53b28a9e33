package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
)

// FairQueue lets calls of Stores that share connections or a disk begin in turn. While other Stores
// are busy, overlapping calls of one Store have a rate: they leave the others time. Use
// [NewFairQueue].
type FairQueue struct {
	calls     *fairqueue.Queue
	reads     *fairqueue.Queue // of Stores that take turns to write only: any number at a time
	questions *fairqueue.Queue // of the followers: they wait for no call
}

// callsPerSecond is how many calls of one Store begin in a second for each processor, while others
// are busy.
const callsPerSecond = 1000

// NewFairQueue returns a FairQueue for so many calls at a time, at least 1, and one more for the
// followers of the Stores.
func NewFairQueue(calls int) *FairQueue {
	calls = max(1, calls)
	processors := runtime.GOMAXPROCS(0)
	perSecond := callsPerSecond * processors
	return &FairQueue{
		calls: fairqueue.New(fairqueue.Rules{
			Turns: calls, PerSecond: perSecond,
			Alone: max(1, calls*3/4), // all its writes may wait for a lock: others need some
			Share: max(1, min(calls, processors)/2),
		}),
		reads:     fairqueue.New(fairqueue.Rules{PerSecond: perSecond}),
		questions: fairqueue.New(fairqueue.Rules{Turns: 1}),
	}
}

// queueUp waits until the pool has a connection for a transaction or a shared statement. Callers
// get their turn in the order in which they came: database/sql gives a free connection to any of
// them. done lets the next caller in.
func (p *pool) queueUp(ctx context.Context, writes bool) (done func(), err error) {
	line := fairqueue.Flow{Owner: p.store, Kind: "reads"}
	if writes { // they may wait for a lock, and no reader waits behind them
		line.Kind = "writes"
	}
	return p.await(ctx, p.fair(), line, p.most())
}

// await waits for a turn of a queue, for as long as a call waits for the database.
func (p *pool) await(
	ctx context.Context, queue *fairqueue.Queue, line fairqueue.Flow, most int,
) (done func(), err error) {
	longest := time.Duration(0)
	if p.silence != nil && !hasTime(ctx) {
		longest = p.silence.longest
	}
	done, err = queue.Acquire(ctx, line, most, longest)
	if errors.Is(err, fairqueue.ErrLate) {
		err = fmt.Errorf("%w: the call has waited for the database for %s: %w",
			svc.ErrUnavailable, longest, err)
	}
	return done, err
}

// crowded reports whether other Stores of the round are busy.
func (p *pool) crowded() bool { return p.shared && p.fair().Contended(p.store) }
