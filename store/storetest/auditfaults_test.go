//go:build planted

package storetest

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// chain is the function that chains events.
type chain = func(last svc.AuditRecord, events []svc.Event) []svc.AuditRecord

// chains returns a fault in the arguments or the result of that function.
func chains(fault func(chain chain, last svc.AuditRecord, events []svc.Event) []svc.AuditRecord) func(*store) {
	return func(s *store) {
		faulty := func(chain chain) func(svc.AuditRecord, []svc.Event) []svc.AuditRecord {
			return func(last svc.AuditRecord, events []svc.Event) []svc.AuditRecord { return fault(chain, last, events) }
		}
		s.queueAudit = func(ctx context.Context, events []svc.Event, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) error {
			return s.FullStore.QueueAudit(ctx, events, faulty(chain))
		}
		s.chainAudit = func(ctx context.Context, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) (bool, error) {
			return s.FullStore.ChainAudit(ctx, faulty(chain))
		}
	}
}

var auditFaults = map[string]func(*store){
	"events are chained in the order of their times": chains(func(chain chain, last svc.AuditRecord, events []svc.Event) []svc.AuditRecord {
		slices.SortStableFunc(events, func(a, b svc.Event) int { return b.Time.Compare(a.Time) })
		return chain(last, events)
	}),
	"a rolled back event is chained": func(s *store) {
		s.atomically = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				if err := fn(ctx, tx); err != errRefused {
					return err
				}
				return nil
			})
		}
	},
	"an erased record loses its hash": func(s *store) {
		s.auditRecords = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			records, err := s.FullStore.AuditRecords(ctx, page)
			for i, r := range records {
				if string(r.Was) == "{}" && r.Is == nil {
					records[i].Hash = nil
				}
			}
			return records, err
		}
	},
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
