package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// appends returns a fault in the argument or the result of the function that AppendAudit calls.
func appends(fault func(next func(svc.AuditRecord) []svc.AuditRecord, last svc.AuditRecord) []svc.AuditRecord) func(*store) {
	return func(s *store) {
		s.appendAudit = func(ctx context.Context, next func(svc.AuditRecord) []svc.AuditRecord) error {
			return s.FullStore.AppendAudit(ctx, func(last svc.AuditRecord) []svc.AuditRecord { return fault(next, last) })
		}
	}
}

// recordsOf returns a fault in the event of each record.
func recordsOf(fault func(*svc.Event)) func(*store) {
	return appends(func(next func(svc.AuditRecord) []svc.AuditRecord, last svc.AuditRecord) []svc.AuditRecord {
		records := next(last)
		for i := range records {
			fault(&records[i].Event)
		}
		return records
	})
}

// eventFaults are faults in the events of records, or of the outbox.
func eventFaults(what string, of func(func(*svc.Event)) func(*store)) map[string]func(*store) {
	faults := map[string]func(*store){}
	for name, fault := range map[string]func(*svc.Event){
		"target loses its owner":       func(e *svc.Event) { e.Target.Owner = "" },
		"tenant is lost":               func(e *svc.Event) { e.Tenant = "" },
		"actor loses its key":          func(e *svc.Event) { e.ActorKey = "" },
		"row before is lost":           func(e *svc.Event) { e.Was = nil },
		"row after is lost":            func(e *svc.Event) { e.Is = nil },
		"rows are exchanged":           func(e *svc.Event) { e.Was, e.Is = e.Is, e.Was },
		"row before is empty, not nil": func(e *svc.Event) { e.Was = append(json.RawMessage{}, e.Was...) },
		"row after is empty, not nil":  func(e *svc.Event) { e.Is = append(json.RawMessage{}, e.Is...) },
		"row before is formatted":      func(e *svc.Event) { e.Was = formatted(e.Was) },
		"row after is formatted":       func(e *svc.Event) { e.Is = formatted(e.Is) },
		"row before is cut off":        func(e *svc.Event) { e.Was = e.Was[:min(len(e.Was), svc.MaxEventRow-1)] },
		"row after is cut off":         func(e *svc.Event) { e.Is = e.Is[:min(len(e.Is), svc.MaxEventRow-1)] },
	} {
		faults[what+"'s "+name] = of(fault)
	}
	return faults
}

// formatted returns a row in the form of encoding/json, with the same meaning.
func formatted(row json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	json.HTMLEscape(&b, row)
	return append(row[:0:0], b.Bytes()...)
}

// asked returns a fault in the page that a caller asks for.
func asked(fault func(*svc.AuditQuery)) func(*store) {
	return func(s *store) {
		s.auditRecords = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			fault(&page)
			return s.FullStore.AuditRecords(ctx, page)
		}
	}
}

var auditFaults = map[string]func(*store){
	"records are listed oldest first": func(s *store) {
		s.auditRecords = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			chunk, err := s.FullStore.AuditRecords(ctx, page)
			slices.Reverse(chunk)
			return chunk, err
		}
	},
	"all records are listed at once":       asked(func(p *svc.AuditQuery) { p.Limit = 1000 }),
	"a record is listed after itself":      asked(func(p *svc.AuditQuery) { p.Before += min(p.Before, 1) }),
	"an actor's kind is ignored":           asked(func(p *svc.AuditQuery) { p.ActorKind = "" }),
	"an actor's id is ignored":             asked(func(p *svc.AuditQuery) { p.ActorID = "" }),
	"a target's kind is ignored":           asked(func(p *svc.AuditQuery) { p.TargetKind = "" }),
	"a target's id is ignored":             asked(func(p *svc.AuditQuery) { p.TargetID = "" }),
	"since is ignored":                     asked(func(p *svc.AuditQuery) { p.Since = time.Time{} }),
	"until is ignored":                     asked(func(p *svc.AuditQuery) { p.Until = time.Time{} }),
	"since excludes a record of that time": asked(func(p *svc.AuditQuery) { p.Since = shifted(p.Since) }),
	"until includes a record of that time": asked(func(p *svc.AuditQuery) { p.Until = shifted(p.Until) }),
	"times are assumed to be in order": func(s *store) {
		s.auditRecords = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			chunk, err := s.FullStore.AuditRecords(ctx, svc.AuditQuery{Before: page.Before, Limit: 1000})
			early := slices.IndexFunc(chunk, func(r svc.AuditRecord) bool { return r.Time.Before(page.Since) })
			if page.Since.IsZero() || early < 0 {
				return s.FullStore.AuditRecords(ctx, page)
			}
			chunk = slices.DeleteFunc(chunk[:early], func(r svc.AuditRecord) bool { return !fits(r, page) })
			return chunk[:min(len(chunk), page.Limit)], err
		}
	},
	"the newest record is not passed to next": appends(func(next func(svc.AuditRecord) []svc.AuditRecord, _ svc.AuditRecord) []svc.AuditRecord {
		return next(svc.AuditRecord{})
	}),
	"the first record passed to next is not zero": appends(func(next func(svc.AuditRecord) []svc.AuditRecord, last svc.AuditRecord) []svc.AuditRecord {
		if last.Number == 0 {
			last.Time = at(0)
		}
		return next(last)
	}),
	"the hash of the record before is lost": appends(func(next func(svc.AuditRecord) []svc.AuditRecord, last svc.AuditRecord) []svc.AuditRecord {
		records := next(last)
		for i := range records {
			records[i].Previous = nil
		}
		return records
	}),
	"only the first of several records is added": appends(func(next func(svc.AuditRecord) []svc.AuditRecord, last svc.AuditRecord) []svc.AuditRecord {
		return next(last)[:1]
	}),
	"a record is added when next returns none": appends(func(next func(svc.AuditRecord) []svc.AuditRecord, last svc.AuditRecord) []svc.AuditRecord {
		if records := next(last); len(records) > 0 {
			return records
		}
		return behind(last, newEvent(0))
	}),
	"the newest record is read before the append, not in one step": func(s *store) {
		s.appendAudit = func(ctx context.Context, next func(svc.AuditRecord) []svc.AuditRecord) error {
			newest, err := s.FullStore.AuditRecords(ctx, svc.AuditQuery{Limit: 1})
			if err != nil {
				return err
			}
			records := next(append(newest, svc.AuditRecord{})[0])
			time.Sleep(time.Millisecond)
			return s.FullStore.AppendAudit(ctx, func(svc.AuditRecord) []svc.AuditRecord { return records })
		}
	},
	"a record raises the generation": func(s *store) {
		s.appendAudit = func(ctx context.Context, next func(svc.AuditRecord) []svc.AuditRecord) error {
			if _, err := s.FullStore.KeepValue(ctx, "records", nil); err != nil {
				return err
			}
			return s.FullStore.AppendAudit(ctx, next)
		}
	},
	"a record stays after its transaction fails": joins(func(good svc.Store, atomically atomically) atomically {
		return func(ctx context.Context, fn func(ctx context.Context, tx svc.Store) error) error {
			err := atomically(ctx, fn)
			if err != nil && ctx.Err() == nil {
				_ = good.(svc.AuditStore).AppendAudit(context.WithoutCancel(ctx), func(last svc.AuditRecord) []svc.AuditRecord { return behind(last, newEvent(0)) })
			}
			return err
		}
	}),
	"transactions append nothing": around(func(tx svc.Store, fn func(svc.Store) error) error {
		return fn(broken(func(s *store) {
			s.appendAudit = func(context.Context, func(svc.AuditRecord) []svc.AuditRecord) error { return nil }
		})(tx))
	}),
}

// longAuditFaults are the faults that only a long log shows.
var longAuditFaults = map[string]func(*store){
	"until skips what is newer than the first record that is too late": keeps(func(all []svc.AuditRecord, page svc.AuditQuery) []svc.AuditRecord {
		late := func(r svc.AuditRecord) bool { return !page.Until.IsZero() && !r.Time.Before(page.Until) }
		for i, record := range slices.Backward(all) {
			if i < len(all)-1000 && late(record) {
				return all[i:]
			}
		}
		return all
	}),
	"a list ends at 2,000 records that do not match": keeps(func(all []svc.AuditRecord, page svc.AuditQuery) []svc.AuditRecord {
		gap := 0
		for i, record := range all {
			if gap++; fits(record, page) {
				gap = 0
			}
			if gap == 2000 {
				return all[:i]
			}
		}
		return all
	}),
}

// keeps returns a fault in the records in which AuditRecords looks.
func keeps(fault func(all []svc.AuditRecord, page svc.AuditQuery) []svc.AuditRecord) func(*store) {
	return func(s *store) {
		s.auditRecords = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			all, err := s.FullStore.AuditRecords(ctx, svc.AuditQuery{Before: page.Before, Limit: 10_000})
			found := slices.DeleteFunc(fault(all, page), func(r svc.AuditRecord) bool { return !fits(r, page) })
			return found[:min(len(found), page.Limit)], err
		}
	}
}

// shifted returns the next possible time of a record. The zero time stays zero.
func shifted(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Microsecond)
}
