package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// QueueAudit implements [svc.AuditStore]. All writes wait for each other: it chains immediately.
func (s *Store) QueueAudit(
	ctx context.Context, events []svc.Event,
	chain func(last svc.AuditRecord, events []svc.Event) []svc.AuditRecord,
) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	var last svc.AuditRecord
	if n := len(s.audit); n > 0 {
		last = cloneRecord(s.audit[n-1])
	}
	for _, record := range chain(last, events) {
		s.audit = append(s.audit, cloneRecord(record))
	}
	return nil
}

// ChainAudit implements [svc.AuditStore]. Its queue is always empty.
func (s *Store) ChainAudit(
	ctx context.Context, _ func(last svc.AuditRecord, events []svc.Event) []svc.AuditRecord,
) (more bool, err error) {
	return false, ctx.Err()
}

// EraseAudit implements [svc.AuditStore].
func (s *Store) EraseAudit(ctx context.Context, records []svc.AuditRecord) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.audit = slices.Clone(s.audit) // a rollback brings the old ones back
	for _, record := range records {
		if i, there := slices.BinarySearchFunc(s.audit, record.Number, byNumber); there {
			was, is := &s.audit[i], cloneRecord(record)
			was.Actor.ID, was.Target.ID = is.Actor.ID, is.Target.ID
			was.Target.Owner, was.Target.Holder.ID = is.Target.Owner, is.Target.Holder.ID
			was.Was, was.Is, was.Salts = is.Was, is.Is, is.Salts
		}
	}
	return nil
}

func byNumber(r svc.AuditRecord, number int64) int { return cmp.Compare(r.Number, number) }

// AuditRecords implements [svc.AuditStore].
func (s *Store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var chunk []svc.AuditRecord
	for _, record := range slices.Backward(s.audit) {
		if len(chunk) == page.Limit {
			break
		}
		if matchesFilter(record, page) {
			chunk = append(chunk, cloneRecord(record))
		}
	}
	return chunk, nil
}

func matchesFilter(r svc.AuditRecord, filter svc.AuditQuery) bool {
	return (filter.Before == 0 || r.Number < filter.Before) &&
		(filter.ActorKind == "" || r.Actor.Kind == filter.ActorKind) &&
		(filter.ActorID == "" || r.Actor.ID == filter.ActorID) &&
		(filter.TargetKind == "" || r.Target.Kind == filter.TargetKind) &&
		(filter.TargetID == "" || r.Target.ID == filter.TargetID) &&
		(filter.Since.IsZero() || !r.Time.Before(filter.Since)) &&
		(filter.Until.IsZero() || r.Time.Before(filter.Until))
}

func cloneRecord(r svc.AuditRecord) svc.AuditRecord {
	r.Previous, r.Hash = bytes.Clone(r.Previous), bytes.Clone(r.Hash)
	r.Event = cloneEvent(r.Event)
	return r
}

func cloneEvent(e svc.Event) svc.Event {
	e.Was, e.Is = bytes.Clone(e.Was), bytes.Clone(e.Is)
	return e
}
