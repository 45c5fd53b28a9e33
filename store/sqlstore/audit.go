package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
)

// The order of commits numbers the records, but their times may go back. So records form spans of
// 2,048 numbers. Each record has the earliest and the latest time from the start of its span to
// itself. A small index has the last record of each span, so a list by time skips other spans.
const (
	auditColumns = `number, ` + eventColumns + `, previous, hash, earliest, latest` + rowColumns +
		`, salts`
	auditSpan = 2048 // also in the index svc_audit_spans
)

// chainedAtOnce is about how many events one transaction chains. Its first statement reads
// queuedAtFirst rows of the queue.
const (
	chainedAtOnce = 1000
	queuedAtFirst = 8
)

// chain returns the records of events, which follow last.
type chain = func(last svc.AuditRecord, events []svc.Event) []svc.AuditRecord

// QueueAudit implements [svc.AuditStore]. With one writer it chains immediately: to read the
// newest record costs less than to write an event twice. The queue is then empty, but in a copy of
// a database of another kind.
func (s *Store) QueueAudit(ctx context.Context, events []svc.Event, chain chain) error {
	return s.transact(ctx, "queue events", func(ctx context.Context, tx session) error {
		t := accessTx{session: tx, dialect: s.dialect}
		if !s.dialect.OneWriter {
			return t.queue(ctx, events)
		}
		for more := true; more; {
			var err error
			if more, err = t.chainQueue(ctx, chain); err != nil {
				return err
			}
		}
		return t.chain(ctx, events, chain)
	})
}

// queuedEvent is an event in the queue. Its rows are texts, because encoding/json would write raw
// JSON in another form.
type queuedEvent struct {
	svc.Event
	Was, Is string
}

func inQueue(e svc.Event) queuedEvent { return queuedEvent{e, string(e.Was), string(e.Is)} }

// queue adds events to the queue, many in a row: a row of the queue is written and deleted.
func (t accessTx) queue(ctx context.Context, events []svc.Event) error {
	return batches(t, `INSERT INTO svc_audit_queue (events) VALUES ($1)`, events,
		func(e svc.Event) any { return inQueue(e) },
		func(query, parameter string, _ int) error { return t.later(ctx, nil, query, parameter) })
}

// ChainAudit implements [svc.AuditStore]. Outside of a transaction it looks at the queue first, so
// that an empty one costs no lock. Calls of one process wait for each other without a connection. A
// database that can only be read keeps its queue.
func (s *Store) ChainAudit(ctx context.Context, chain chain) (more bool, err error) {
	if s.write != nil {
		waiting, err := one(ctx, s.db.reading(), scanValue[int64],
			`SELECT COUNT(*) FROM (SELECT 1 AS one FROM svc_audit_queue LIMIT 1) waiting`)
		if err != nil || waiting == 0 {
			return false, s.fault(ctx, "look for queued events", err)
		}
		done, err := s.write.await(ctx, s.chaining, fairqueue.Flow{}, 1)
		if err != nil {
			return false, s.fault(ctx, "chain events", err)
		}
		defer done()
	}
	err = s.transact(ctx, "chain events", func(ctx context.Context, tx session) (err error) {
		more, err = accessTx{session: tx, dialect: s.dialect}.chainQueue(ctx, chain)
		return err
	})
	if s.write != nil && sqlState(err) == readOnly {
		return false, nil
	}
	return more, err
}

// chainQueue chains the first rows of the queue.
//
// The statements behind the lock see what its holders before have committed. A row leaves the queue
// by its own number, never by a range: one with a smaller number may be committed in the meantime.
func (t accessTx) chainQueue(ctx context.Context, chain chain) (more bool, err error) {
	if !t.dialect.OneWriter {
		if err := t.lockInOrder(ctx, "audit"); err != nil {
			return false, err
		}
	}
	taken, events, more, err := t.queued(ctx)
	if err != nil || len(taken) == 0 {
		return false, err
	}
	if err := t.chain(ctx, events, chain); err != nil {
		return false, err
	}
	err = batches(t, `DELETE FROM svc_audit_queue
		WHERE seq IN (SELECT CAST(value AS BIGINT) FROM {ids})`, taken, itself,
		func(query, parameter string, n int) error {
			return t.later(ctx, func(rows int64) error {
				if rows != int64(n) {
					return errors.New("queued events were deleted by somebody else")
				}
				return nil
			}, query, parameter)
		})
	return more, err
}

// queued returns the numbers of the first rows of the queue, and their events. more: there may be
// more rows. A row may have one event or hundreds, and the server sends all rows that a statement
// asks for. So each statement asks for twice as many as the one before.
//
// Each statement sees another state. One that sees a row before those that it asks for, which the
// statements before it did not see, returns none: what follows that row must wait for it.
func (s session) queued(
	ctx context.Context,
) (taken []int64, events []svc.Event, more bool, err error) {
	next := int64(math.MinInt64)
	for rows := queuedAtFirst; len(events) < chainedAtOnce; rows *= 2 {
		before := len(taken)
		err = each(ctx, s, func(row scanner) (enough bool, err error) {
			number, some, err := scanQueued(row)
			next = number + 1
			taken, events = append(taken, number), append(events, some...)
			return len(events) >= chainedAtOnce, err
		}, `SELECT seq, events FROM svc_audit_queue WHERE seq >= $1
			AND (SELECT COUNT(*) FROM svc_audit_queue WHERE seq < $1) = $2
			ORDER BY seq LIMIT ($3 + 0)`, next, before, rows)
		if err != nil || len(taken) < before+rows && len(events) < chainedAtOnce {
			return taken, events, before > 0 && len(taken) == before, err
		}
	}
	return taken, events, true, nil
}

func scanQueued(row scanner) (number int64, events []svc.Event, err error) {
	var text []byte
	var queued []queuedEvent
	if err = row.Scan(&number, &text); err == nil {
		err = json.Unmarshal(text, &queued)
	}
	for _, q := range queued {
		q.Event.Was, q.Event.Is = rowOrNil(q.Was), rowOrNil(q.Is)
		events = append(events, q.Event)
	}
	return number, events, err
}

func rowOrNil(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// chain adds the records of events.
func (t accessTx) chain(ctx context.Context, events []svc.Event, chain chain) error {
	last, err := oneOrNil(ctx, t.session, scanRow,
		`SELECT `+auditColumns+` FROM svc_audit ORDER BY number DESC LIMIT 1`)
	if err != nil {
		return err
	}
	if last == nil {
		last = &auditRow{}
	}
	return t.insertRecords(ctx, last.followedBy(chain(last.AuditRecord, events)))
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

// insertRecord inserts records, which are the JSON $1. JSON has no bytes: theirs are parts of $2.
const insertRecord = `WITH elements AS (SELECT value FROM {rows})
	INSERT INTO svc_audit (` + auditColumns + `)
	SELECT CAST(value->>0 AS BIGINT), value->>1, CAST(value->>2 AS BIGINT), value->>3, value->>4,
	value->>5, value->>6, value->>7, value->>8, value->>9, value->>10, value->>11, value->>12,
	substr(CAST($2 AS {bytes}), CAST(value->>13 AS INTEGER), CAST(value->>14 AS INTEGER)),
	substr(CAST($2 AS {bytes}), CAST(value->>15 AS INTEGER), CAST(value->>16 AS INTEGER)),
	CAST(value->>17 AS BIGINT), CAST(value->>18 AS BIGINT), value->>19, value->>20, value->>21,
	value->>22 FROM elements`

// insertRecords inserts records with few statements, however many they are.
func (t accessTx) insertRecords(ctx context.Context, records []auditRow) error {
	var hashes []byte
	part := func(hash []byte) (from, length any) {
		if hash == nil {
			return nil, nil // null
		}
		hashes = append(hashes, hash...)
		return len(hashes) - len(hash) + 1, len(hash)
	}
	return batches(t, strings.ReplaceAll(insertRecord, "{bytes}", t.dialect.Bytes), records,
		func(r auditRow) any {
			cells := append(make([]any, 0, 23), r.Number)
			cells = append(cells, eventArgs(r.Event)...)
			from, length := part(r.Previous)
			cells = append(cells, from, length)
			from, length = part(r.Hash)
			cells = append(cells, from, length, r.earliest, r.latest)
			return append(append(cells, rowArgs(r.Event)...), saltsText(r.Salts))
		},
		func(query, parameter string, _ int) error {
			err := t.later(ctx, nil, query, parameter, hashes)
			hashes = nil // a driver may still read them
			return err
		})
}

// saltsText returns the stored form of salts. "": none.
func saltsText(salts svc.AuditSalts) string {
	if salts == (svc.AuditSalts{}) {
		return ""
	}
	text, _ := json.Marshal(salts) // never fails
	return string(text)
}

// EraseAudit implements [svc.AuditStore].
func (s *Store) EraseAudit(ctx context.Context, records []svc.AuditRecord) error {
	return s.transact(ctx, "erase texts", func(ctx context.Context, tx session) error {
		for _, r := range records {
			t := r.Target
			err := tx.later(ctx, nil, `UPDATE svc_audit SET actor_id = $1, target_id = $2,
				target_owner = $3, target_holder_id = $4, row_was = $5, row_is = $6, salts = $7
				WHERE number = $8`, r.Actor.ID, t.ID, t.Owner, t.Holder.ID,
				string(r.Was), string(r.Is), saltsText(r.Salts), r.Number)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func scanRow(row scanner) (r auditRow, err error) {
	var e eventRow
	var salts []byte
	columns := slices.Concat(
		[]any{&r.Number}, e.columns(), []any{&r.Previous, &r.Hash, &r.earliest, &r.latest},
		e.rows(),
		[]any{&salts},
	)
	if err := row.Scan(columns...); err != nil {
		return r, err
	}
	if len(salts) > 0 && json.Unmarshal(salts, &r.Salts) != nil {
		r.Salts = svc.AuditSalts{} // somebody has changed it: then the hash does not match
	}
	r.Event, err = e.event()
	return r, err
}

func scanRecord(row scanner) (svc.AuditRecord, error) {
	r, err := scanRow(row)
	return r.AuditRecord, err
}

// scannedAtOnce is how many numbers one statement goes through that no index leads to records: more
// could take longer than a call may wait for an answer.
const scannedAtOnce = 1 << 18

// AuditRecords implements [svc.AuditStore]. A list by time reads one run of spans after the other.
func (s *Store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	records, timed := []svc.AuditRecord{}, !page.Since.IsZero() || !page.Until.IsZero()
	kinds := string(page.ActorKind) + string(page.TargetKind)
	scans := timed || page.ActorID+page.TargetID == "" && kinds != ""
	var err error
	if page.Before = cmp.Or(page.Before, math.MaxInt64); scans {
		page.Before, err = one(ctx, s.db.reading(), scanValue[int64],
			`SELECT COALESCE(MAX(number), 0) + 1 FROM svc_audit WHERE number < $1`, page.Before)
	}
	for err == nil {
		from := int64(0)
		if scans {
			from = page.Before - scannedAtOnce
		}
		l := s.dialect.listRecords(page, from, timed)
		var run []svc.AuditRecord
		run, err = all(ctx, s.db.reading(), scanRecord, l.query, l.parameters...)
		records, page.Limit = append(records, run...), page.Limit-len(run)
		if err == nil && timed {
			from, err = one(ctx, s.db.reading(), scanValue[int64], nextRun, append(bounds(page), from)...)
		}
		if page.Before = from; page.Limit == 0 || from <= 1 {
			break
		}
	}
	return records, s.fault(ctx, "list records", err)
}

// A run is spans in a row that can have records from time $1 until $2. The newest run ends before
// number $3; the span of that number and an incomplete span belong to it.
const (
	// beforeRun is the last number before the newest run.
	beforeRun = `(SELECT MAX(number) FROM svc_audit
		WHERE number % 2048 = 0 AND (latest < $1 OR earliest >= $2) AND number < $3)`
	// nextRun selects the number before which to go on when the newest run was read from number $4
	// on: there, or at the end of the next run; 1: nowhere.
	nextRun = `SELECT CASE WHEN COALESCE(` + beforeRun + `, 0) < $4 THEN $4
			ELSE 1 + COALESCE(MAX(number), 0) END FROM svc_audit
		WHERE number % 2048 = 0 AND latest >= $1 AND earliest < $2 AND number < ` + beforeRun
	inRun = `happened_at >= $1 AND happened_at < $2
		AND number > COALESCE(` + beforeRun + `, 0)`
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

func (d Dialect) listRecords(page svc.AuditQuery, from int64, timed bool) *listing {
	l := list(`SELECT ` + auditColumns + ` FROM svc_audit`)
	if timed {
		l.parameters = bounds(page) // $1 to $3 of inRun
		l.where(inRun)
	}
	l.where("number < " + l.add(page.Before))
	if from > 0 {
		l.where("number >= " + l.add(from))
	}
	l.equal("actor_kind", string(page.ActorKind))
	l.equal("target_kind", string(page.TargetKind))
	order := "number DESC"
	// When many records have a value, PostgreSQL would look for the newest by their numbers, through
	// all that have come since. Of two values only the index of the column has the order.
	by := func(column, value string) {
		if value == "" || timed || d.OneWriter || order != "number DESC" {
			l.equal(column, value)
			return
		}
		name := l.add(value)
		l.where(column + " IN (" + name + ", " + name + ")")
		order = column + " DESC, number DESC"
	}
	by("target_id", page.TargetID)
	by("actor_id", page.ActorID)
	l.query += " ORDER BY " + order + " LIMIT 0 + " + l.add(page.Limit)
	return l
}
