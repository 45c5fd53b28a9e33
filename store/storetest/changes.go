package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var changeRules = []rule{
	{"a mutation raises the generation by one, and Changes returns its targets", func(c *checker) {
		made := int64(0)
		mutations(c.ctx, c.Store, func(call string, err error, targets ...svc.Target) {
			c.ok(err)
			changes := c.changes(made)
			made++
			c.same("generation after "+call, changes.Generation, made)
			c.sameTargets(call, changes.Targets, targets)
		})
	}},
	{"Changes returns the targets of several mutations in commit order, " +
		"from any generation that it has returned", func(c *checker) {
		var changed [][]svc.Target
		mutations(c.ctx, c.Store, func(_ string, err error, targets ...svc.Target) {
			c.ok(err)
			c.generation()
			changed = append(changed, targets)
		})
		for since := range changed {
			rest := c.changes(int64(since)).Targets
			for i, want := range changed[since:] {
				n := min(len(want), len(rest))
				c.sameTargets(fmt.Sprint("mutation ", since+i), rest[:n], want)
				rest = rest[n:]
			}
			c.sameTargets("what is left", rest, nil)
		}
	}},
	{"Changes returns targets unchanged, whatever their ids", func(c *checker) {
		var want []svc.Target
		for _, id := range odd {
			key := newKey(id, asAccount(id), at(0))
			c.ok(c.CreateSource(c.ctx, newSource(personalSource(id, id))))
			c.ok(createAndChange(c.ctx, c.Store, key))
			want = append(want, personalSource(id, id).Target(), key.Target())
		}
		c.same("targets", c.changes(0).Targets, want)
	}},
	{"Changes returns Targets and Renamed of a change of access as they are, " +
		"whatever was written", func(c *checker) {
		write := svc.Bundle{Users: users("alice")}.Write()
		write.Targets = []svc.Target{
			{Kind: event.TargetMember, ID: "g"}, joined(svc.Membership{Group: "g", User: "alice"}),
			{Kind: event.TargetChannel, ID: "p:a:b"}, {Kind: event.TargetAccess},
			{Kind: event.TargetMember, ID: "g"},
		}
		write.Renamed = []svc.Target{
			{Kind: event.TargetUser, ID: "b"}, {Kind: event.TargetGroup, ID: "a"},
		}
		c.write(write)
		c.same("changes", c.changes(0), svc.StoreChanges{
			Generation: 1, Targets: write.Targets, Renamed: write.Renamed,
		})
		write.Targets, write.Renamed = nil, write.Renamed[:1]
		c.write(write)
		c.same("a change of names", c.changes(1), svc.StoreChanges{
			Generation: 2, Renamed: write.Renamed,
		})
	}},
	{"Changes returns all targets of a large mutation", func(c *checker) {
		var b svc.Bundle
		for i := range 300 {
			b.Users = append(b.Users, svc.User{ID: fmt.Sprint(i)})
		}
		c.apply(b)
		changes := c.changes(0)
		c.same("generation", changes.Generation, int64(1))
		c.sameTargets("300 users", changes.Targets, b.Targets())
	}},
	{"refused calls, changes that write nothing, " +
		"and calls that are not mutations add no changes", func(c *checker) {
		prepare(c.ctx, c.Store, c.made)
		c.generation()
		check := func(call string, _ error, _ ...svc.Target) {
			c.same("after "+call, c.changes(prepared), svc.StoreChanges{Generation: prepared})
		}
		refusals(c.ctx, c.Store, check)
		reads(c.ctx, c.Store, check)
	}},
	{"Changes returns a Reset without targets when since is a generation " +
		"that the store never had or has not reached", func(c *checker) {
		for _, since := range []int64{-1, 1, 1 << 62} {
			c.reset(since, 0)
		}
		c.apply(svc.Bundle{Users: users("alice")})
		for _, since := range []int64{-1 << 63, -1, 2, 1<<63 - 1} {
			c.reset(since, 1)
		}
	}},
}

var freshnessRules = []rule{
	{"Look returns another number after each mutation, or always 0", func(c *checker) {
		store := c.Store.(svc.FreshnessStore)
		last := must(store.Look(c.ctx))
		mutations(c.ctx, c.Store, func(call string, err error, _ ...svc.Target) {
			c.ok(err)
			now := must(store.Look(c.ctx))
			if (now == last) != (now == 0) {
				c.fail("Look returned %d before %s, and %d after it", last, call, now)
			}
			last = now
		})
	}},
}

// changes reads what has changed since a generation that the store remembers.
func (c *checker) changes(since int64) svc.StoreChanges {
	changes := must(c.Changes(c.ctx, since))
	if changes.Reset {
		c.fail("Changes since %d is a Reset at generation %d", since, changes.Generation)
	}
	return changes
}

func (c *checker) reset(since, generation int64) {
	c.same(fmt.Sprint("changes since ", since), must(c.Changes(c.ctx, since)), svc.StoreChanges{
		Generation: generation, Reset: true,
	})
}

// sameTargets expects the targets of one mutation, in any order.
func (c *checker) sameTargets(what string, got, want []svc.Target) {
	shown := map[svc.Target]string{}
	for _, target := range slices.Concat(got, want) {
		shown[target] = show(target)
	}
	sorted := func(targets []svc.Target) []svc.Target {
		return slices.SortedFunc(slices.Values(targets), func(a, b svc.Target) int {
			return strings.Compare(shown[a], shown[b])
		})
	}
	c.same("targets of "+what, sorted(got), sorted(want))
}

// longRules are slow: -short skips them.
var longRules = []rule{
	{"Changes is complete for the last 1,000 generations, " +
		"and complete or a Reset for older ones", func(c *checker) {
		const mutations = 1200
		want := make([]svc.Target, mutations)
		for i := range want {
			source := feedSource(0, i)
			if i == mutations-1000 {
				c.generation()
			}
			c.ok(c.CreateSource(c.ctx, source))
			want[i] = source.Target()
		}
		c.same("the last 1,000", c.changes(mutations-1000), svc.StoreChanges{
			Generation: mutations, Targets: want[mutations-1000:],
		})
		changes := must(c.Changes(c.ctx, 0))
		if !changes.Reset {
			c.same("all", changes.Targets, want)
		}
	}},
	{"a reader that polls Changes misses no change while others write", func(c *checker) {
		f := &feed{checker: c}
		c.together(1, func(i, _ int) {
			if i == 0 {
				f.read()
			} else {
				f.write(i - 1)
			}
		})
	}},
	{"AwaitChange returns at once when the generation differs from since", func(c *checker) {
		c.apply(svc.Bundle{Users: users("alice")})
		for _, since := range []int64{0, 2} {
			c.soon(func() int64 { return since }, c.awaits, wakesNobody)
		}
	}},
	{"AwaitChange returns as soon as a mutation commits", func(c *checker) {
		c.soon(c.generation, c.awaits, func() error {
			return change(c.ctx, c.Store, svc.Bundle{Users: users("alice")})
		})
	}},
	{"AwaitChange returns after about a second when nothing commits", func(c *checker) {
		var took time.Duration
		for range 3 { // a busy machine may be late
			begun := time.Now()
			c.ok(c.AwaitChange(c.ctx, 0))
			if took = time.Since(begun); took < 4*time.Second {
				return
			}
		}
		c.fail("it took %v", took)
	}},
	{"AwaitChange waits when nothing commits", func(c *checker) {
		for range 100 { // it may return without a change
			begun := time.Now()
			c.ok(c.AwaitChange(c.ctx, 0))
			if time.Since(begun) > wakeAfter {
				return
			}
		}
		c.fail("it returned 100 times without a pause, so a caller in a loop never rests")
	}},
	{"AwaitChange fails as soon as its context ends", func(c *checker) {
		c.soon(func() int64 { return 0 }, func(int64) error {
			ctx, cancel := context.WithTimeout(c.ctx, wakeAfter)
			defer cancel()
			var err error
			for err == nil { // it may return without a change
				ended := ctx.Err()
				if err = c.AwaitChange(ctx, 0); err == nil && ended != nil {
					return errors.New("it ignores that its context has ended")
				}
			}
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, svc.ErrUnavailable) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}, wakesNobody)
	}},
}

// awaits waits for a change.
func (c *checker) awaits(since int64) error { return c.AwaitChange(c.ctx, since) }

// wakesNobody wakes nobody.
func wakesNobody() error { return nil }

// wakeAfter is the time until a waiting call is woken.
const wakeAfter = 30 * time.Millisecond

// soon expects that wait, which calls AwaitChange, returns soon after wake has run, or immediately
// when it does not wait. wait gets what from returned before wake could run. soon tries ten times,
// because a busy machine may be late: a store that polls is late each time.
func (c *checker) soon(from func() int64, wait func(since int64) error, wake func() error) {
	var took time.Duration
	for range 10 {
		since := from()
		woken, failed := time.Now(), make(chan error, 1)
		timer := time.AfterFunc(wakeAfter, func() {
			err := wake()
			woken = time.Now()
			failed <- err
		})
		c.ok(wait(since))
		returned := time.Now()
		if !timer.Stop() {
			c.ok(<-failed)
		}
		if took = returned.Sub(woken); took < 400*time.Millisecond {
			return
		}
	}
	c.fail("AwaitChange took %v", took)
}

// feed is one reader of changes and several writers. The writers wait when the reader falls behind,
// because a store remembers a limited number of generations.
type feed struct {
	*checker
	written, seen atomic.Int64
	ended         atomic.Bool // the reader has stopped
}

const (
	feedWriters = racers - 1
	feedEach    = 4_000/feedWriters + 1 // how many mutations each writer makes
	feedBehind  = 500                   // how many changes the reader may be behind
)

func (f *feed) write(writer int) {
	for i := range feedEach {
		for f.written.Load()-f.seen.Load() > feedBehind {
			if f.ended.Load() {
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
		f.ok(f.CreateSource(f.ctx, feedSource(writer, i)))
		f.written.Add(1)
	}
}

func feedSource(writer, i int) svc.Source {
	return newSource(personalSource(fmt.Sprint(writer), fmt.Sprintf("%d-%d", writer, i)))
}

// read follows the changes until it has seen all, and expects to miss none.
func (f *feed) read() {
	defer f.ended.Store(true)
	var next [feedWriters]int
	var since int64
	for progress := time.Now(); since < feedWriters*feedEach; {
		changes := f.changes(since)
		if counted := changes.Generation - since; counted != int64(len(changes.Targets)) {
			f.fail("%d changes from generation %d to %d",
				len(changes.Targets), since, changes.Generation)
		}
		for _, target := range changes.Targets {
			var writer, i int
			if _, err := fmt.Sscanf(target.ID, "%d-%d", &writer, &i); err != nil ||
				writer >= feedWriters {
				f.fail("unexpected change of %s", show(target))
			}
			if next[writer] != i || target != feedSource(writer, i).Target() {
				f.fail("got the change of %s, want that of number %d", show(target), next[writer])
			}
			next[writer]++
		}
		if changes.Generation > since {
			progress = time.Now()
		} else if time.Since(progress) > time.Minute {
			f.fail("no change after generation %d of %d", since, f.written.Load())
		}
		since = changes.Generation
		f.seen.Store(since)
	}
}
