package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

var changeRules = []rule{
	{"a mutation raises the generation by one, and Changes returns its targets", func(c *checker) {
		for i, call := range mutations() {
			c.ok(call.do(c.ctx, c.Store))
			changes := c.changes(int64(i))
			c.same("generation after "+call.name, changes.Generation, int64(i+1))
			c.sameTargets(call.name, changes.Targets, call.targets)
		}
	}},
	{"Changes returns the targets of several mutations in commit order, " +
		"from any earlier generation", func(c *checker) {
		for _, call := range mutations() {
			c.ok(call.do(c.ctx, c.Store))
		}
		for since := range mutations() {
			rest := c.changes(int64(since)).Targets
			for _, call := range mutations()[since:] {
				n := min(len(call.targets), len(rest))
				c.sameTargets(call.name, rest[:n], call.targets)
				rest = rest[n:]
			}
			c.sameTargets("what is left", rest, nil)
		}
	}},
	{"Changes returns targets unchanged, whatever their ids", func(c *checker) {
		var want []svc.Target
		for _, id := range odd {
			key := newKey(id, svc.Identity{Kind: svc.KindServiceAccount, ID: id}, at(0))
			c.ok(c.CreateSource(c.ctx, newSource(personalSource(id, id))))
			c.ok(c.CreateAPIKey(c.ctx, key))
			want = append(want, personalSource(id, id).Target(), key.Target())
		}
		c.same("targets", c.changes(0).Targets, want)
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
		for _, call := range mutations()[:prepared] {
			c.ok(call.do(c.ctx, c.Store))
		}
		for _, call := range slices.Concat(refusals(), reads()) {
			_ = call.do(c.ctx, c.Store)
			c.same(
				"changes after "+call.name, c.changes(prepared), svc.Changes{Generation: prepared},
			)
		}
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

// changes reads what has changed since a generation that the store remembers.
func (c *checker) changes(since int64) svc.Changes {
	changes, err := c.Changes(c.ctx, since)
	c.ok(err)
	if changes.Reset {
		c.fail("Changes since %d is a Reset at generation %d", since, changes.Generation)
	}
	return changes
}

func (c *checker) reset(since, generation int64) {
	changes, err := c.Changes(c.ctx, since)
	c.ok(err)
	c.same(fmt.Sprint("changes since ", since), changes, svc.Changes{
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
