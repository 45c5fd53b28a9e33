package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var outboxRules = []rule{
	{"ClaimEvents returns events as they were added, " +
		"oldest first, at most limit", func(c *checker) {
		var events []svc.Event
		for n := range uint32(len(odd)) {
			events = append(events, newEvent(n))
		}
		host := svc.Event{
			ID: newEvent(1000).ID, Time: at(1000), Actor: svc.Host.Identity(),
			Action: event.AccessWritten,
		}
		events = append(events, host)
		shuffled := slices.Clone(events)
		slices.Reverse(shuffled)
		c.ok(c.AddEvents(c.ctx, shuffled[:7]))
		c.ok(c.AddEvents(c.ctx, shuffled[7:]))
		c.same("the oldest 3", c.claim(at(0), at(10), 3), events[:3])
		c.same("the rest", c.claim(at(0), at(10), 1000), events[3:])
	}},
	{"ClaimEvents returns the rows of access of an event byte by byte: " +
		"up to limits.EventRow, and nil for none", func(c *checker) {
		want := withRows()
		c.ok(c.AddEvents(c.ctx, want))
		c.sameRows(c.claim(at(0), at(10), 100), want)
	}},
	{"ClaimEvents of an empty outbox returns no events and no error", func(c *checker) {
		c.same("events", c.claim(at(0), at(10), 10), []svc.Event{})
		c.ok(c.AddEvents(c.ctx, nil))
		c.same("events", c.claim(at(0), at(10), 10), []svc.Event{})
	}},
	{"a claim is exclusive until its time; " +
		"after that any caller can claim the event", func(c *checker) {
		c.add(1, 2, 3)
		c.same("first", ns(c.claim(at(0), at(100), 2)), []uint32{1, 2})
		c.same("meanwhile", ns(c.claim(at(99), at(200), 10)), []uint32{3})
		c.same("when the first are free", ns(c.claim(at(101), at(300), 10)), []uint32{1, 2})
		c.same("when the third is free", ns(c.claim(at(201), at(300), 10)), []uint32{3})
		c.same("when none is", ns(c.claim(at(299), at(400), 10)), []uint32{})
	}},
	{"a claim no longer counts when it ends over a minute after until: " +
		"the clock has gone back", func(c *checker) {
		c.add(1, 2)
		ahead, behind := at(0).Add(time.Hour), at(0).Add(-59*time.Second)
		c.same("ahead", ns(c.claim(ahead, ahead.Add(time.Second), 1)), []uint32{1})
		c.same("back", ns(c.claim(at(0), at(0).Add(time.Second), 10)), []uint32{1, 2})
		c.same("a clock that differs", ns(c.claim(behind, behind.Add(time.Second), 10)), []uint32{})
	}},
	{"DeleteEvents deletes exactly the named events, claimed or not; " +
		"a missing event is not an error", func(c *checker) {
		c.add(1, 2, 3, 4)
		c.claim(at(0), at(100), 2)
		for range 2 {
			c.ok(c.DeleteEvents(c.ctx, []uuid.UUID{newEvent(1).ID, newEvent(3).ID, newEvent(9).ID}))
			c.ok(c.DeleteEvents(c.ctx, nil))
		}
		c.same("what is left", ns(c.claim(at(101), at(200), 10)), []uint32{2, 4})
	}},
	{"events are not mutations: the generation does not change", func(c *checker) {
		c.add(1, 2)
		c.claim(at(0), at(100), 1)
		c.ok(c.DeleteEvents(c.ctx, []uuid.UUID{newEvent(1).ID}))
		c.same("generation", c.generation(), int64(0))
	}},
	{"concurrent ClaimEvents calls claim each event exactly once", func(c *checker) {
		const events = 200
		for n := range uint32(events) {
			c.add(n)
		}
		var mu sync.Mutex
		times := map[uint32]int{}
		c.together(1, func(int, int) {
			for range events {
				claimed := c.claim(at(0), at(100), 7)
				if len(claimed) == 0 {
					return
				}
				mu.Lock()
				for _, n := range ns(claimed) {
					times[n]++
				}
				mu.Unlock()
			}
			c.fail("the events do not end")
		})
		for n := range uint32(events) {
			if times[n] != 1 {
				c.fail("event %d was claimed %d times", n, times[n])
			}
		}
	}},
}

var statsRules = []rule{
	{"CountEvents counts the events in the outbox, claimed or not, up to most", func(c *checker) {
		c.count(0, 10)
		c.add(1, 2, 3)
		c.claim(at(0), at(100), 2)
		c.count(3, 10)
		c.count(2, 2)
		c.ok(c.DeleteEvents(c.ctx, []uuid.UUID{newEvent(1).ID}))
		c.count(2, 10)
	}},
}

func (c *checker) count(want, most int) {
	c.same("events", must(c.CountEvents(c.ctx, most)), want)
}

func (c *checker) add(events ...uint32) {
	for _, n := range events {
		c.ok(c.AddEvents(c.ctx, []svc.Event{newEvent(n)}))
	}
}

func (c *checker) claim(now, until time.Time, limit int) []svc.Event {
	return must(c.ClaimEvents(c.ctx, now, until, limit))
}

// ns returns the numbers that newEvent received.
func ns(events []svc.Event) []uint32 {
	return column(events, func(e svc.Event) uint32 {
		return uint32(e.Time.Sub(at(0)) / time.Microsecond)
	})
}
