package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

// longRules take long.
var longRules = []rule{
	{"Changes remembers the last 1,000 generations, and is complete or a Reset before that", func(c *checker) {
		const mutations = 1200
		want := make([]svc.Target, mutations)
		for i := range want {
			key := newKey(fmt.Sprint(i), alice, at(0))
			c.ok(c.CreateAPIKey(c.ctx, key))
			want[i] = key.Target()
		}
		c.same("the last 1,000", c.changes(mutations-1000), svc.Changes{Generation: mutations, Targets: want[mutations-1000:]})
		changes, err := c.Changes(c.ctx, 0)
		c.ok(err)
		if !changes.Reset {
			c.same("all", changes.Targets, want)
		}
	}},
	{"a reader who asks for Changes again and again misses none, whoever writes meanwhile", func(c *checker) {
		f := newFeed(c)
		errs := race(func(i int) error {
			if i == 0 {
				return f.read()
			}
			return f.write(i - 1)
		})
		c.ok(errors.Join(errs...))
	}},
	{"AwaitChange returns at once when the generation is another", func(c *checker) {
		c.apply(svc.Bundle{Users: users("alice")})
		for _, since := range []int64{0, 2} {
			c.soon("AwaitChange", func() error { return c.AwaitChange(c.ctx, since) }, func() error { return nil })
		}
	}},
	{"AwaitChange returns as soon as somebody commits", func(c *checker) {
		c.soon("AwaitChange", func() error { return c.AwaitChange(c.ctx, c.generation()) }, func() error {
			return change(c.ctx, c.Store, svc.Bundle{Users: users("alice")})
		})
	}},
	{"AwaitChange returns after about a second, though nothing was committed", func(c *checker) {
		begun := time.Now()
		c.ok(c.AwaitChange(c.ctx, 0))
		if took := time.Since(begun); took > 4*time.Second {
			c.fail("it took %v", took)
		}
	}},
	{"AwaitChange fails as soon as its context ends", func(c *checker) {
		c.soon("AwaitChange", func() error {
			ctx, cancel := context.WithTimeout(c.ctx, wakeAfter)
			defer cancel()
			var err error
			for err == nil { // it may wake for nothing
				ended := ctx.Err()
				if err = c.AwaitChange(ctx, 0); err == nil && ended != nil {
					return errors.New("it goes on without its context")
				}
			}
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, svc.ErrUnavailable) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}, func() error { return nil })
	}},
}

// wakeAfter is when those who wait are woken.
const wakeAfter = 30 * time.Millisecond

// soon expects that wait returns soon after wake was called, or at once when it need not be woken. A busy machine may be late,
// but not each time.
func (c *checker) soon(what string, wait, wake func() error) {
	var took time.Duration
	for range 3 {
		woken, failed := time.Now(), make(chan error, 1)
		timer := time.AfterFunc(wakeAfter, func() {
			woken = time.Now()
			failed <- wake()
		})
		c.ok(wait())
		returned := time.Now()
		if !timer.Stop() {
			c.ok(<-failed)
		}
		if took = returned.Sub(woken); took < 400*time.Millisecond {
			return
		}
	}
	c.fail("%s took %v", what, took)
}

// feed is one reader of changes and several who make them. Who writes waits for the reader when it falls behind, as a store
// remembers only so much.
type feed struct {
	*checker
	written, seen atomic.Int64
	ended         atomic.Bool // by the reader
}

const (
	feedWriters = racers - 1
	feedEach    = 10_000/feedWriters + 1 // how many mutations each writer makes
	feedBehind  = 500                    // how far behind the reader may be
)

func newFeed(c *checker) *feed { return &feed{checker: c} }

func (f *feed) write(writer int) error {
	for i := range feedEach {
		for f.written.Load()-f.seen.Load() > feedBehind {
			if f.ended.Load() {
				return nil
			}
			time.Sleep(50 * time.Microsecond)
		}
		if err := f.CreateAPIKey(f.ctx, feedKey(writer, i)); err != nil {
			return err
		}
		f.written.Add(1)
	}
	return nil
}

func feedKey(writer, i int) svc.APIKey {
	return newKey(fmt.Sprintf("%d-%d", writer, i), svc.Identity{Kind: svc.KindUser, ID: fmt.Sprint(writer)}, at(0))
}

// read follows the changes until it has seen all, and says which it missed.
func (f *feed) read() error {
	defer f.ended.Store(true)
	var next [feedWriters]int
	var since int64
	for progress := time.Now(); since < feedWriters*feedEach; {
		changes, err := f.Changes(f.ctx, since)
		if err != nil {
			return err
		}
		if changes.Reset {
			return fmt.Errorf("a Reset at generation %d, asked from %d", changes.Generation, since)
		}
		if counted := changes.Generation - since; counted != int64(len(changes.Targets)) {
			return fmt.Errorf("%d changes from generation %d to %d", len(changes.Targets), since, changes.Generation)
		}
		for _, target := range changes.Targets {
			var writer, i int
			if _, err := fmt.Sscanf(target.ID, "%d-%d", &writer, &i); err != nil || writer >= feedWriters {
				return fmt.Errorf("a change of %s", show(target))
			}
			if next[writer] != i || target != feedKey(writer, i).Target() {
				return fmt.Errorf("the change of %s came where that of number %d was due", show(target), next[writer])
			}
			next[writer]++
		}
		if changes.Generation > since {
			progress = time.Now()
		} else if time.Since(progress) > 10*time.Second {
			return fmt.Errorf("no change after generation %d, of %d", since, f.written.Load())
		}
		since = changes.Generation
		f.seen.Store(since)
	}
	return nil
}
