package sqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
)

// The order of commits numbers the records, but their times may go back. The column latest holds
// the latest time of a record and of all records before it. It never goes back, so an index finds
// the first record that can be as late as a given time.
const (
	auditColumns = `number, ` + eventColumns + `, previous, hash, latest`
	auditWidth   = 16
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
			`SELECT `+auditColumns+` FROM svc_audit ORDER BY number DESC LIMIT 1`)
		if err != nil {
			return err
		}
		if last == nil {
			last = &auditRow{latest: math.MinInt64}
		}
		records := last.followedBy(next(last.AuditRecord))
		for len(records) > 0 {
			rows := s.dialect.rowsAtOnce(len(records))
			insert := `INSERT INTO svc_audit (` + auditColumns + `) VALUES ` +
				values(rows, auditWidth, "")
			if err := tx.later(ctx, nil, insert, recordArgs(records[:rows])...); err != nil {
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
	latest int64
}

// followedBy returns the rows for records, which follow r.
func (r auditRow) followedBy(records []svc.AuditRecord) []auditRow {
	rows := make([]auditRow, len(records))
	for i, record := range records {
		r = auditRow{record, max(r.latest, record.Time.UnixMicro())}
		rows[i] = r
	}
	return rows
}

func recordArgs(rows []auditRow) (args []any) {
	for _, r := range rows {
		args = append(args, r.Number)
		args = append(append(args, eventArgs(r.Event)...), r.Previous, r.Hash, r.latest)
	}
	return args
}

func scanRow(row scanner) (r auditRow, err error) {
	var e eventRow
	columns := slices.Concat([]any{&r.Number}, e.columns(), []any{&r.Previous, &r.Hash, &r.latest})
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

// AuditRecords implements [svc.AuditStore].
func (s *Store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	query, args := selectRecords(page)
	chunk, err := all(ctx, s.db.reading(), scanRecord, query, args...)
	return chunk, s.fault(ctx, "list records", err)
}

// firstSince skips, without reading them, all records before the first that can be as late as $1.
const firstSince = ` AND number >= COALESCE((SELECT number FROM svc_audit
	WHERE latest >= $1 ORDER BY latest, number LIMIT 1), 9223372036854775807)`

func selectRecords(page svc.AuditQuery) (query string, args []any) {
	query = `SELECT ` + auditColumns + ` FROM svc_audit WHERE number < $1`
	args = []any{cmp.Or(page.Before, math.MaxInt64)}
	where := func(given bool, conditions string, value any) {
		if given {
			args = append(args, value)
			query += strings.ReplaceAll(conditions, "$1", "$"+strconv.Itoa(len(args)))
		}
	}
	where(page.ActorKind != "", " AND actor_kind = $1", page.ActorKind)
	where(page.ActorID != "", " AND actor_id = $1", page.ActorID)
	where(page.TargetKind != "", " AND target_kind = $1", page.TargetKind)
	where(page.TargetID != "", " AND target_id = $1", page.TargetID)
	where(!page.Since.IsZero(), " AND happened_at >= $1"+firstSince, page.Since.UnixMicro())
	where(!page.Until.IsZero(), " AND happened_at < $1", page.Until.UnixMicro())
	args = append(args, page.Limit)
	return query + " ORDER BY number DESC LIMIT ($" + strconv.Itoa(len(args)) + " + 0)", args
}
