//go:build planted

package storetest

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

var auditFaults = map[string]func(*store){
	"a rolled back event is chained": func(s *store) {
		s.does["Atomically"] = func(ctx context.Context, fn func(context.Context, svc.Store) error) error {
			return s.FullStore.Atomically(ctx, func(ctx context.Context, tx svc.Store) error {
				if err := fn(ctx, tx); err != errRefused {
					return err
				}
				return nil
			})
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
		s.does["AuditRecords"] = func(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
			all, err := s.FullStore.AuditRecords(ctx, svc.AuditQuery{Before: page.Before, Limit: 10_000})
			found := slices.DeleteFunc(fault(all, page), func(r svc.AuditRecord) bool { return !fits(r, page) })
			return found[:min(len(found), page.Limit)], err
		}
	}
}
