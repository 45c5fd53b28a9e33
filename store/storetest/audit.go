package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

var auditRules = []rule{
	{"AuditRecords returns records as they were chained, " +
		"newest first, at most Limit", func(c *checker) {
		want := c.record(100)
		for _, limit := range []int{1, 7, 100, 1000} {
			c.same("records", c.records(svc.AuditQuery{Limit: limit}), want)
		}
		c.same("the newest", c.page(svc.AuditQuery{Limit: 2}), want[:2])
		c.same("behind one", c.page(svc.AuditQuery{Before: 50, Limit: 2}), want[51:53])
	}},
	{"the store does not share memory with the records that it returned", func(c *checker) {
		want := c.record(2)
		spoil(c.page(svc.AuditQuery{Limit: 2}))
		c.same("records", c.page(svc.AuditQuery{Limit: 2}), want)
	}},
	{"AuditRecords returns the rows of access of a record byte by byte: " +
		"up to limits.EventRow, and nil for none", func(c *checker) {
		want := withRows()
		c.ok(chained(c.ctx, c, want...))
		c.sameRows(eventsOf(c.page(svc.AuditQuery{Limit: 100})), want)
	}},
	{"the function that chains events gets the newest record, " +
		"or a zero record when there is none, and the events", func(c *checker) {
		for n := range 3 {
			var last svc.AuditRecord
			var events []svc.Event
			chain := func(newest svc.AuditRecord, some []svc.Event) []svc.AuditRecord {
				last, events = newest, some
				return behind(newest, some...)
			}
			c.ok(c.QueueAudit(c.ctx, []svc.Event{auditEvent(n)}, chain))
			c.ok(chainAll(c.ctx, c, chain))
			c.same("events", events, []svc.Event{auditEvent(n)})
			if n == 0 {
				c.same("before there is one", last, svc.AuditRecord{})
				continue
			}
			c.same("the newest", last, c.page(svc.AuditQuery{Limit: 2})[1])
		}
	}},
	{"ChainAudit adds nothing when the queue is empty", func(c *checker) {
		want := c.record(2)
		for range 2 {
			c.same("more", must(c.ChainAudit(c.ctx, behindAll)), false)
		}
		c.same("records", c.records(svc.AuditQuery{Limit: 10}), want)
	}},
	{"ChainAudit keeps the order of calls of QueueAudit and of their events, " +
		"also of thousands", func(c *checker) {
		var want []svc.Event
		for n := range 8 {
			var events []svc.Event
			for len(events) < 1+n*60 {
				events = append(events, newEvent(uint32(len(want)+len(events))))
			}
			c.ok(c.QueueAudit(c.ctx, events, behindAll))
			want = append(want, events...)
		}
		c.ok(chainAll(c.ctx, c, behindAll))
		c.same("events", eventsOf(c.records(svc.AuditQuery{Limit: 1000})), want)
	}},
	{"an event is chained after its commit, by a call outside or inside of a transaction, " +
		"and not at all after a rollback", func(c *checker) {
		for n, inside := range []bool{false, true, false, true} {
			err := c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				audit := tx.(svc.AuditStore)
				err := audit.QueueAudit(ctx, []svc.Event{newEvent(uint32(n))}, behindAll)
				if err == nil && inside {
					_, err = audit.ChainAudit(ctx, behindAll)
				}
				if n < 2 {
					return errRefused
				}
				return err
			})
			c.same("refused", errors.Is(err, errRefused), n < 2)
		}
		c.ok(chainAll(c.ctx, c, behindAll))
		got := eventsOf(c.page(svc.AuditQuery{Limit: 10}))
		c.same("events", got, []svc.Event{newEvent(2), newEvent(3)})
	}},
	{"EraseAudit replaces the ids, rows and salts of records, and nothing else, " +
		"unless it is rolled back", func(c *checker) {
		want := c.record(30)
		erase := func(at int) []svc.AuditRecord {
			return []svc.AuditRecord{{Number: 1000}, eraseAll(want[at]), eraseAll(want[at+17])}
		}
		c.ok(c.EraseAudit(c.ctx, erase(2)))
		want[2], want[19] = eraseText(want[2]), eraseText(want[19])
		c.same("records", c.records(svc.AuditQuery{Limit: 7}), want)
		for _, end := range []error{errRefused, nil} {
			err := c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				audit := tx.(svc.AuditStore)
				_, err := audit.ChainAudit(ctx, behindAll)
				return errors.Join(err, audit.EraseAudit(ctx, erase(3)), end)
			})
			if c.same("refused", errors.Is(err, errRefused), end != nil); end == nil {
				want[3], want[20] = eraseText(want[3]), eraseText(want[20])
			}
			c.same("records", c.records(svc.AuditQuery{Limit: 7}), want)
		}
		c.ok(chained(c.ctx, c, newEvent(1)))
		c.same("behind", c.page(svc.AuditQuery{Limit: 1})[0].Previous, want[0].Hash)
	}},
	{"AuditRecords filters by actor, target and time, each alone and combined", func(c *checker) {
		all := c.record(60)
		for _, filter := range auditFilters(all[20]) {
			want := fitting(all, filter)
			for _, filter.Limit = range []int{7, 1000} {
				c.same(fmt.Sprintf("records of %+v", filter), c.records(filter), want)
			}
		}
	}},
	{"audit records are not mutations: the generation does not change", func(c *checker) {
		c.record(2)
		c.same("generation", c.generation(), int64(0))
	}},
	{"concurrent calls form one chain of all events: " +
		"no number is missing or used twice", func(c *checker) {
		const each = 4
		c.together(each, func(i, j int) {
			n := uint32(2 * (i*each + j))
			c.ok(chained(c.ctx, c, newEvent(n), newEvent(n+1)))
		})
		all := c.records(svc.AuditQuery{Limit: 1000})
		c.same("number of records", len(all), 2*each*racers)
		seen := map[uuid.UUID]bool{}
		for i, record := range all {
			c.same("number", record.Number, int64(len(all)-i))
			c.same("hash", record.Hash, fmt.Appendf(nil, "\x00\xffhash %d", record.Number))
			c.same("chained before", seen[record.ID], false)
			seen[record.ID] = true
		}
	}},
	{"of several concurrent transactions that mutate " +
		"and queue, each adds its record", func(c *checker) {
		c.together(1, func(i, _ int) {
			c.ok(c.Atomically(c.ctx, func(ctx context.Context, tx svc.Store) error {
				if err := tx.CreateTemplate(ctx, handMade(fmt.Sprint(i))); err != nil {
					return err
				}
				return tx.(svc.AuditStore).QueueAudit(ctx, []svc.Event{newEvent(0)}, behindAll)
			}))
		})
		c.ok(chainAll(c.ctx, c, behindAll))
		all := c.records(svc.AuditQuery{Limit: 1000})
		c.same("number of records", len(all), racers)
		c.same("the newest", all[0].Number, int64(racers))
	}},
}

// longAuditRules are slow.
var longAuditRules = []rule{
	{"AuditRecords finds all records until and since a time in a long log, " +
		"also where times go back or far ahead", func(c *checker) {
		const count = 6200
		all := c.recordAll(count, func(n int) svc.Event {
			event := auditEvent(n)
			event.Time = at(int64(n))
			switch n {
			case 300:
				event.Time = at(2 * count)
			case 5000:
				event.Time = at(3000)
			case count - 1:
				event.Time = at(50)
			}
			return event
		})
		for _, filter := range []svc.AuditQuery{
			{Until: at(0)}, {Until: at(90)}, {Until: at(90), ActorID: alice.ID}, {Until: at(4500)},
			{Until: at(2048)}, {Until: at(2048), Before: 2500}, {Until: at(3001), Before: 5002},
			{Since: at(6100)}, {Since: at(2 * count)}, {Since: at(count), TargetID: odd[0]},
			{Since: at(40), Until: at(60)}, {Since: at(2900), Until: at(3100), Before: 2950},
		} {
			want := fitting(all, filter)
			for _, filter.Limit = range []int{count, 50} {
				got := c.page(filter)
				c.same(fmt.Sprintf("number of %+v", filter), len(got), min(len(want), filter.Limit))
				c.same(fmt.Sprintf("records of %+v", filter), got, want[:len(got)])
			}
		}
	}},
}

// chained queues events and chains all that are queued.
func chained(ctx context.Context, s svc.AuditStore, events ...svc.Event) error {
	if err := s.QueueAudit(ctx, events, behindAll); err != nil {
		return err
	}
	return chainAll(ctx, s, behindAll)
}

// chainAll chains all queued events, with a hundred calls at most.
func chainAll(
	ctx context.Context, s svc.AuditStore,
	chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord,
) error {
	for range 100 {
		if more, err := s.ChainAudit(ctx, chain); err != nil || !more {
			return err
		}
	}
	return errors.New("the queue never ends")
}

// eraseText returns r with other texts.
func eraseText(r svc.AuditRecord) svc.AuditRecord {
	r.Actor.ID, r.Target.ID, r.Target.Owner, r.Target.Holder.ID = "a", "b", "c", "d"
	r.Was, r.Is = []byte("{}"), nil
	r.Salts = svc.AuditSalts{Actor: "e", Target: "f", Owner: "g", Holder: "h", Is: "i"}
	return r
}

// eraseAll returns r with other texts, and more that EraseAudit must not write.
func eraseAll(r svc.AuditRecord) svc.AuditRecord {
	r = eraseText(r)
	r.Time, r.Action, r.ActorKey, r.Tenant, r.Hash, r.Previous = at(1000), "x", "x", "x", nil, nil
	r.Actor.Kind, r.Target.Kind, r.Target.Holder.Kind, r.Target.Scope = "x", "x", "x", "x"
	return r
}

func behindAll(last svc.AuditRecord, events []svc.Event) []svc.AuditRecord {
	return behind(last, events...)
}

// behind returns records of events that continue the chain after last.
func behind(last svc.AuditRecord, events ...svc.Event) (records []svc.AuditRecord) {
	for _, event := range events {
		last = svc.AuditRecord{
			Event: event, Number: last.Number + 1, Previous: last.Hash,
			Hash:  fmt.Appendf(nil, "\x00\xffhash %d", last.Number+1),
			Salts: svc.AuditSalts{Actor: "salt of " + event.Actor.ID, Was: odd[last.Number%3]},
		}
		records = append(records, last)
	}
	return records
}

// record chains count events in growing batches, and returns them newest first.
func (c *checker) record(count int) []svc.AuditRecord { return c.recordAll(count, auditEvent) }

func (c *checker) recordAll(count int, event func(n int) svc.Event) []svc.AuditRecord {
	var events []svc.Event
	for n := range count {
		events = append(events, event(n))
	}
	all := behind(svc.AuditRecord{}, events...)
	for from, n := 0, 1; from < count; n *= 3 {
		to := min(from+n, count)
		c.ok(chained(c.ctx, c, events[from:to]...))
		from = to
	}
	slices.Reverse(all)
	return all
}

// auditEvent returns an event for n. A greater n gives another event, not always a later one.
func auditEvent(n int) svc.Event {
	e := newEvent(uint32(n))
	e.Time = at(int64(n * 7 % 60))
	e.Actor = []svc.Identity{alice, asAccount("alice"), svc.Host.Identity(), asUser("bob")}[n%4]
	if n%5 == 0 {
		e.Target = svc.Target{Kind: event.TargetTemplate, ID: odd[n%3], Scope: svc.ScopeServer}
	} else {
		e.Target.ID = odd[n%3]
	}
	return e
}

// auditFilters returns filters that match r (one field, two fields, all), and one that does
// not.
func auditFilters(r svc.AuditRecord) (filters []svc.AuditQuery) {
	set := []func(*svc.AuditQuery){
		func(f *svc.AuditQuery) { f.ActorKind = r.Actor.Kind },
		func(f *svc.AuditQuery) { f.ActorID = r.Actor.ID },
		func(f *svc.AuditQuery) { f.TargetKind = r.Target.Kind },
		func(f *svc.AuditQuery) { f.TargetID = r.Target.ID },
		func(f *svc.AuditQuery) { f.Since = r.Time },
		func(f *svc.AuditQuery) { f.Until = r.Time.Add(time.Microsecond) },
		func(f *svc.AuditQuery) { f.Before = r.Number + 1 },
	}
	var whole svc.AuditQuery
	for i, one := range set {
		one(&whole)
		for _, other := range set[i:] {
			var filter svc.AuditQuery
			one(&filter)
			other(&filter)
			filters = append(filters, filter)
		}
	}
	none := svc.AuditQuery{Until: r.Time, Since: r.Time}
	return append(filters, whole, none)
}

// fitting returns the records that match a filter.
func fitting(records []svc.AuditRecord, filter svc.AuditQuery) []svc.AuditRecord {
	return slices.DeleteFunc(slices.Clone(records), func(r svc.AuditRecord) bool {
		return !fits(r, filter)
	})
}

// fits reports whether a record matches a filter.
func fits(r svc.AuditRecord, f svc.AuditQuery) bool {
	return (f.ActorKind == "" || f.ActorKind == r.Actor.Kind) &&
		(f.ActorID == "" || f.ActorID == r.Actor.ID) &&
		(f.TargetKind == "" || f.TargetKind == r.Target.Kind) &&
		(f.TargetID == "" || f.TargetID == r.Target.ID) &&
		(f.Since.IsZero() || r.Time.Compare(f.Since) >= 0) &&
		(f.Until.IsZero() || r.Time.Compare(f.Until) < 0) &&
		(f.Before == 0 || r.Number < f.Before)
}

// eventsOf returns the events of a page of records, oldest first.
func eventsOf(page []svc.AuditRecord) []svc.Event {
	events := column(page, func(r svc.AuditRecord) svc.Event { return r.Event })
	slices.Reverse(events)
	return events
}

func (c *checker) page(page svc.AuditQuery) []svc.AuditRecord {
	return must(c.AuditRecords(c.ctx, page))
}

// records lists all records that match the page's filter, in chunks of its limit.
func (c *checker) records(page svc.AuditQuery) []svc.AuditRecord {
	return wholePages(c, page.Limit, func(last svc.AuditRecord) ([]svc.AuditRecord, error) {
		page.Before = cmp.Or(last.Number, page.Before)
		return c.AuditRecords(c.ctx, page)
	})
}
