package readcache

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc/internal/background"
	"github.com/extsvc/svc/internal/changefeed"
)

// Limits in time.
const (
	// trusted is how long cached values are used after the store was last seen. After that, every
	// call reads the store.
	trusted   = 5 * time.Second
	seePause  = 100 * time.Millisecond // after a failed look at the store
	beginning = int64(math.MaxInt64)   // a generation that no store knows: it answers with a reset
)

// Feed reports what changes in a store.
type Feed interface {
	// Next returns what has changed after the generation since. It ends in bounded time, also when
	// the store does not answer.
	Next(ctx context.Context, since int64) (Changes, error)
	// AwaitChange returns when there may be changes after the generation since, or ctx ends.
	AwaitChange(ctx context.Context, since int64) error
	// Look returns a number that differs from an earlier one when something was committed in
	// between. It is quick. 0: the store can never tell.
	Look(ctx context.Context) (uint64, error)
}

// Changes says what changed between two generations of a store.
type Changes struct {
	Generation int64  // the store's generation now
	Reset      bool   // every row may have changed
	Drop       func() // drops the copies of the rows that have changed
}

// generations knows up to which generation of a store its changes have been applied.
type generations struct {
	feed    Feed
	epoch   time.Time     // seen counts from here
	follows atomic.Bool   // the follower runs
	seen    atomic.Int64  // nanoseconds: when the store was last seen to match the cache; 0: never
	applied atomic.Int64  // every change up to this generation has been dropped
	heard   atomic.Int64  // the latest generation that a read has shown
	looked  atomic.Uint64 // what Look said before the changes applied last were read

	blind    atomic.Bool // Look has said that the store cannot tell
	catching background.SingleFlight[struct{}]
	applying sync.Mutex // one applyNext at a time
	since    int64      // the generation to ask from next; under applying

	wake atomic.Pointer[context.CancelFunc] // ends the follower's wait for a change
}

// current reports whether the cache can be used now. It looks at the store where that is cheap, and
// applies what was committed since. So after it returns, no cached value is older than a commit
// that ended before the call. Other stores must have been seen recently.
func (c *Cache) current() bool {
	if c.blind.Load() {
		return c.fresh()
	}
	looked, err := c.feed.Look(context.Background())
	switch {
	case err != nil:
		return false
	case looked == 0:
		c.blind.Store(true)
		return c.fresh()
	case looked == c.looked.Load():
		return true
	}
	return c.CatchUp(context.Background()) == nil
}

// fresh reports whether the store was seen recently enough to use the cache.
func (g *generations) fresh() bool {
	seen := g.seen.Load()
	return seen != 0 && int64(time.Since(g.epoch))-seen < int64(trusted)
}

// View is a generation, and tells which values found after the View was taken belong to it. These
// are the values read at that generation. When every change up to it has been dropped, older values
// belong to it as well.
type View struct {
	Generation int64
	applied    bool
}

// Holds reports whether a value that was read at a generation belongs to the View.
func (v View) Holds(generation int64) bool {
	return generation == v.Generation || v.applied && generation < v.Generation
}

// View returns the latest generation known. false: the cache cannot be used now, because the store
// cannot be seen, or was last seen too long ago.
func (c *Cache) View() (View, bool) {
	if c == nil {
		return View{}, false
	}
	current := c.current()
	heard, applied := c.heard.Load(), c.applied.Load()
	if heard > applied {
		return View{heard, false}, current
	}
	return View{applied, true}, current
}

// behind reports whether a read has shown a generation whose changes are not applied yet.
func (g *generations) behind() bool { return g.heard.Load() > g.applied.Load() }

// Hear records the generation that a read has shown, and wakes the follower when it is behind.
func (c *Cache) Hear(generation int64) {
	if c == nil {
		return
	}
	for {
		heard := c.heard.Load()
		if generation <= heard {
			return
		}
		if c.heard.CompareAndSwap(heard, generation) {
			break
		}
	}
	if wake := c.wake.Load(); wake != nil && generation > c.applied.Load() {
		(*wake)()
	}
}

// follow applies the changes of the store until ctx ends.
func (c *Cache) follow(ctx context.Context) {
	c.follows.Store(true)
	for ctx.Err() == nil {
		// It shares no outcome with CatchUp: it may be told less than was committed.
		if err := c.applyNext(ctx, true); err != nil {
			background.Wait(ctx, time.After(seePause))
			continue
		}
		c.awaitChange(ctx, c.applied.Load())
	}
}

// CatchUp drops what was committed before the call, in any process. Concurrent callers share the
// outcome, so the end of ctx does not end the work.
func (c *Cache) CatchUp(ctx context.Context) error {
	if c == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	_, err := c.catching.Do(func() (struct{}, error) { return struct{}{}, c.applyNext(ctx, false) })
	return err
}

// applyNext reads and applies the changes since the last time. A follower takes what the store was
// told, unless that lacks what a read has shown. The order counts: what Look says before the read
// is what the read includes.
func (c *Cache) applyNext(ctx context.Context, follows bool) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	asked, heard := int64(time.Since(c.epoch)), c.heard.Load()
	looked, err := c.feed.Look(ctx)
	if err != nil {
		return err
	}
	var changes Changes
	if follows {
		ctx, call := changefeed.With(ctx)
		changes, err = c.feed.Next(ctx, c.since)
		if !call.AsOf.IsZero() {
			asked = int64(call.AsOf.Sub(c.epoch))
		}
	}
	if !follows || err == nil && changes.Generation < heard {
		changes, err = c.feed.Next(ctx, c.since)
	}
	if err != nil {
		return err
	}
	c.apply(changes, heard)
	c.since = changes.Generation
	c.looked.Store(looked)
	c.seen.Store(max(1, asked)) // 0: never
	return nil
}

// apply drops what has changed, and records up to which generation the cache holds. heard is the
// latest generation shown by reads before the changes were requested: a store that is behind it was
// restored from a backup.
func (c *Cache) apply(changes Changes, heard int64) {
	if changes.Reset || changes.Generation < heard {
		c.Reset()
		c.heard.CompareAndSwap(heard, min(heard, changes.Generation))
	}
	changes.Drop()
	c.applied.Store(changes.Generation)
}

// awaitChange returns when there may be changes, or a read has shown a later generation.
func (c *Cache) awaitChange(ctx context.Context, since int64) {
	waiting, wake := context.WithCancel(ctx)
	defer wake()
	c.wake.Store(&wake)
	if err := c.feed.AwaitChange(waiting, since); err != nil && waiting.Err() == nil {
		background.Wait(ctx, time.After(seePause))
	}
}

// Stats says how a cache follows its store.
type Stats struct {
	Reads uint64        // of the store, because nothing cached held
	Seen  bool          // the store is followed, and was seen
	Age   time.Duration // since it was last seen; 0: never
	Lag   int64         // generations that a read has shown and that are not applied
}

// Stats returns the figures of now.
func (c *Cache) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	s := Stats{Reads: c.reads.Load(), Lag: max(0, c.heard.Load()-c.applied.Load())}
	if seen := c.seen.Load(); seen != 0 && c.follows.Load() {
		s.Seen, s.Age = true, max(0, time.Since(c.epoch)-time.Duration(seen))
	}
	return s
}
