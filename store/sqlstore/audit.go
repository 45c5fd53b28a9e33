package sqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/extsvc/svc"
)

// The order of commits numbers the records, but their times may go back. So records form spans of
// 2,048 numbers. Each record has the earliest and the latest time from the start of its span to
// itself. A small index has the last record of each span, so a list by time skips other spans.
const (
	auditColumns = `number, ` + eventColumns + `, previous, hash, earliest, latest`
	auditWidth   = 17
	auditSpan    = 2048 // also in the index svc_audit_spans
)

// AppendAudit implements [svc.AuditStore].
func (s *Store) AppendAudit(
	ctx context.Context, next func(last svc.AuditRecord) []svc.AuditRecord,
) error {
	return s.transact(ctx, "append records", func(ctx context.Context, tx session) error {
		if err := tx.lock(ctx, "audit"); err != nil {
			return err
		}
		last, err := oneOrNil(ctx, tx, scanRow,
			`SELECT `+auditColumns+rowColumns+` FROM svc_audit ORDER BY number DESC LIMIT 1`)
		if err != nil {
			return err
		}
		if last == nil {
			last = &auditRow{}
		}
		records := last.followedBy(next(last.AuditRecord))
		for len(records) > 0 {
			rows := s.dialect.rowsAtOnce(len(records))
			if err := tx.insertRecords(ctx, records[:rows]); err != nil {
				return err
			}
			records = records[rows:]
		}
		return nil
	})
}

// auditRow is a stored record.
type auditRow struct {
	svc.AuditRecord
	earliest, latest int64
}

// followedBy returns the rows for records, which follow r.
func (r auditRow) followedBy(records []svc.AuditRecord) []auditRow {
	rows := make([]auditRow, len(records))
	for i, record := range records {
		at := record.Time.UnixMicro()
		if record.Number%auditSpan == 1 {
			r.earliest, r.latest = at, at
		}
		r = auditRow{record, min(r.earliest, at), max(r.latest, at)}
		rows[i] = r
	}
	return rows
}

// insertRecords inserts records with one statement. Without rows of access and a tenant it leaves
// their columns out: to bind two more values takes SQLite a fifth longer.
func (s session) insertRecords(ctx context.Context, records []auditRow) error {
	columns, width := auditColumns, auditWidth
	withRows := slices.ContainsFunc(records, func(r auditRow) bool {
		return len(r.Was)+len(r.Is)+len(r.Tenant) > 0
	})
	if withRows {
		columns, width = columns+rowColumns, width+rowWidth
	}
	args := make([]any, 0, len(records)*width)
	for _, r := range records {
		args = append(append(args, r.Number), eventArgs(r.Event)...)
		args = append(args, r.Previous, r.Hash, r.earliest, r.latest)
		if withRows {
			args = append(args, rowArgs(r.Event)...)
		}
	}
	return s.later(ctx, nil, `INSERT INTO svc_audit (`+columns+`) VALUES `+
		values(len(records), width, ""), args...)
}

func scanRow(row scanner) (r auditRow, err error) {
	var e eventRow
	columns := slices.Concat(
		[]any{&r.Number}, e.columns(), []any{&r.Previous, &r.Hash, &r.earliest, &r.latest}, e.rows(),
	)
	if err := row.Scan(columns...); err != nil {
		return r, err
	}
	r.Event, err = e.event()
	return r, err
}

func scanRecord(row scanner) (svc.AuditRecord, error) {
	r, err := scanRow(row)
	return r.AuditRecord, err
}

// AuditRecords implements [svc.AuditStore]. A list by time reads one run of spans after the other.
func (s *Store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	records, timed := []svc.AuditRecord{}, !page.Since.IsZero() || !page.Until.IsZero()
	page.Before = cmp.Or(page.Before, math.MaxInt64)
	for {
		query, args := selectRecords(page, timed)
		run, err := all(ctx, s.db.reading(), scanRecord, query, args...)
		records, page.Limit = append(records, run...), page.Limit-len(run)
		if err != nil || page.Limit == 0 || !timed {
			return records, s.fault(ctx, "list records", err)
		}
		last, err := one(ctx, s.db.reading(), scanNumber, nextRun, bounds(page)...)
		if err != nil || last == 0 {
			return records, s.fault(ctx, "list records", err)
		}
		page.Before = last + 1
	}
}

// A run is spans in a row that can have records from time $1 until $2. The newest run ends before
// number $3; the span of that number and an incomplete span belong to it.
const (
	// beforeRun is the last number before the newest run.
	beforeRun = `(SELECT MAX(number) FROM svc_audit
		WHERE number % 2048 = 0 AND (latest < $1 OR earliest >= $2) AND number < $3)`
	// nextRun selects the last number of the next run; 0: there is none.
	nextRun = `SELECT COALESCE(MAX(number), 0) FROM svc_audit
		WHERE number % 2048 = 0 AND latest >= $1 AND earliest < $2 AND number < ` + beforeRun
	inRun = `happened_at >= $1 AND happened_at < $2 AND number > COALESCE(` + beforeRun + `, 0) AND `
)

// bounds returns the times of a page, and the number before which it begins.
func bounds(page svc.AuditQuery) []any {
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !page.Since.IsZero() {
		since = page.Since.UnixMicro()
	}
	if !page.Until.IsZero() {
		until = page.Until.UnixMicro()
	}
	return []any{since, until, page.Before}
}

func selectRecords(page svc.AuditQuery, timed bool) (query string, args parameters) {
	query = `SELECT ` + auditColumns + rowColumns + ` FROM svc_audit WHERE `
	if timed {
		query, args = query+inRun, bounds(page)
	}
	where := func(condition string, value any) { query += condition + args.add(value) }
	where("number < ", page.Before)
	equal := func(column, value string) {
		if value != "" {
			where(" AND "+column+" = ", value)
		}
	}
	equal("actor_kind", string(page.ActorKind))
	equal("actor_id", page.ActorID)
	equal("target_kind", string(page.TargetKind))
	equal("target_id", page.TargetID)
	where(" ORDER BY number DESC LIMIT 0 + ", page.Limit)
	return query, args
}
