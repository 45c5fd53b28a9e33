package sqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/extsvc/svc"
)

const (
	auditColumns = `number, ` + eventColumns + `, previous, hash`
	auditWidth   = 14
)

// AppendAudit implements [svc.AuditStore].
func (s *Store) AppendAudit(ctx context.Context, next func(last svc.AuditRecord) []svc.AuditRecord) error {
	return s.transact(ctx, "append records", func(ctx context.Context, tx session) error {
		// Writing this row first makes others who would append wait, in every database.
		if err := tx.touch(ctx, `UPDATE svc_locks SET name = name WHERE name = 'audit'`); err != nil {
			return err
		}
		last, err := oneOrNil(ctx, tx, scanRecord, `SELECT `+auditColumns+` FROM svc_audit ORDER BY number DESC LIMIT 1`)
		if err != nil {
			return err
		}
		if last == nil {
			last = &svc.AuditRecord{}
		}
		records := next(*last)
		for len(records) > 0 {
			rows := s.dialect.rowsAtOnce(len(records))
			if _, err := tx.exec(ctx, `INSERT INTO svc_audit (`+auditColumns+`) VALUES `+values(rows, auditWidth, ""), recordArgs(records[:rows])...); err != nil {
				return err
			}
			records = records[rows:]
		}
		return nil
	})
}

func recordArgs(records []svc.AuditRecord) (args []any) {
	for _, r := range records {
		args = append(args, r.Number)
		args = append(append(args, eventArgs(r.Event)...), r.Previous, r.Hash)
	}
	return args
}

func scanRecord(row scanner) (r svc.AuditRecord, err error) {
	var e eventRow
	if err := row.Scan(slices.Concat([]any{&r.Number}, e.columns(), []any{&r.Previous, &r.Hash})...); err != nil {
		return r, err
	}
	r.Event, err = e.event()
	return r, err
}

// AuditRecords implements [svc.AuditStore].
func (s *Store) AuditRecords(ctx context.Context, page svc.AuditPage) ([]svc.AuditRecord, error) {
	query, args := selectRecords(page)
	chunk, err := all(ctx, s.db.reading(), scanRecord, query, args...)
	return chunk, s.fault(ctx, "list records", err)
}

func selectRecords(page svc.AuditPage) (query string, args []any) {
	query = `SELECT ` + auditColumns + ` FROM svc_audit WHERE number < $1`
	args = []any{cmp.Or(page.Before, math.MaxInt64)}
	where := func(condition string, value any) {
		args = append(args, value)
		query += " AND " + condition + " $" + strconv.Itoa(len(args))
	}
	if page.ActorKind != "" {
		where("actor_kind =", page.ActorKind)
	}
	if page.ActorID != "" {
		where("actor_id =", page.ActorID)
	}
	if page.TargetKind != "" {
		where("target_kind =", page.TargetKind)
	}
	if page.TargetID != "" {
		where("target_id =", page.TargetID)
	}
	if !page.Since.IsZero() {
		where("happened_at >=", page.Since.UnixMicro())
	}
	if !page.Until.IsZero() {
		where("happened_at <", page.Until.UnixMicro())
	}
	args = append(args, page.Limit)
	return query + " ORDER BY number DESC LIMIT ($" + strconv.Itoa(len(args)) + " + 0)", args
}
