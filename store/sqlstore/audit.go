package sqlstore

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
)

const (
	auditColumns = `number, id, happened_at, actor_kind, actor_id, action,
		target_kind, target_id, target_scope, target_owner, target_holder_kind, target_holder_id, previous, hash`
	auditWidth = 14
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
			rows := rowsAtOnce(len(records))
			if _, err := tx.exec(ctx, insertRecords(rows), recordArgs(records[:rows])...); err != nil {
				return err
			}
			records = records[rows:]
		}
		return nil
	})
}

func insertRecords(rows int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO svc_audit (` + auditColumns + `) VALUES `)
	for row := range rows {
		b.WriteString("(")
		for column := range auditWidth {
			b.WriteString("$" + strconv.Itoa(1+row*auditWidth+column) + ", ")
		}
		b.WriteString("), ")
	}
	return strings.TrimSuffix(strings.ReplaceAll(b.String(), ", )", ")"), ", ")
}

func recordArgs(records []svc.AuditRecord) (args []any) {
	for _, r := range records {
		t := r.Target
		args = append(args, r.Number, r.ID.String(), r.Time.UnixMicro(), r.Actor.Kind, r.Actor.ID, r.Action,
			t.Kind, t.ID, t.Scope, t.Owner, t.Holder.Kind, t.Holder.ID, r.Previous, r.Hash)
	}
	return args
}

func scanRecord(row scanner) (r svc.AuditRecord, err error) {
	var at int64
	var id string
	t := &r.Target
	err = row.Scan(&r.Number, &id, &at, &r.Actor.Kind, &r.Actor.ID, &r.Action,
		&t.Kind, &t.ID, &t.Scope, &t.Owner, &t.Holder.Kind, &t.Holder.ID, &r.Previous, &r.Hash)
	if err != nil {
		return r, err
	}
	r.Time = fromMicro(at)
	r.ID, err = uuid.Parse(id)
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
