package memstore

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// AppendAudit implements [svc.AuditStore].
func (s *Store) AppendAudit(ctx context.Context, next func(last svc.AuditRecord) []svc.AuditRecord) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	var last svc.AuditRecord
	if n := len(s.audit); n > 0 {
		last = cloneRecord(s.audit[n-1])
	}
	for _, record := range next(last) {
		s.audit = append(s.audit, cloneRecord(record))
	}
	return nil
}

// AuditRecords implements [svc.AuditStore].
func (s *Store) AuditRecords(ctx context.Context, page svc.AuditPage) ([]svc.AuditRecord, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var chunk []svc.AuditRecord
	for _, record := range slices.Backward(s.audit) {
		if len(chunk) == page.Limit {
			break
		}
		if wanted(record, page.AuditFilter) {
			chunk = append(chunk, cloneRecord(record))
		}
	}
	return chunk, nil
}

func wanted(r svc.AuditRecord, filter svc.AuditFilter) bool {
	return (filter.Before == 0 || r.Number < filter.Before) &&
		(filter.ActorKind == "" || r.Actor.Kind == filter.ActorKind) &&
		(filter.ActorID == "" || r.Actor.ID == filter.ActorID) &&
		(filter.TargetKind == "" || r.Target.Kind == filter.TargetKind) &&
		(filter.TargetID == "" || r.Target.ID == filter.TargetID) &&
		(filter.Since.IsZero() || !r.Time.Before(filter.Since)) &&
		(filter.Until.IsZero() || r.Time.Before(filter.Until))
}

func cloneRecord(r svc.AuditRecord) svc.AuditRecord {
	r.Previous, r.Hash = cloneBytes(r.Previous), cloneBytes(r.Hash)
	return r
}
