package sqlstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/outbox"
)

// AddEvents implements [svc.OutboxStore].
func (s *Store) AddEvents(ctx context.Context, events []svc.Event) error {
	return s.transact(ctx, "add events", func(ctx context.Context, tx session) error {
		for _, e := range events {
			_, err := tx.exec(ctx, `INSERT INTO `+s.dialect.outbox()+`
				(`+eventColumns+rowColumns+`, claimed_until)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0)
				ON CONFLICT DO NOTHING`, slices.Concat(eventArgs(e), rowArgs(e))...)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

const outboxTable = "svc_outbox"

// outbox returns the table that events are added to. All tenants share one.
func (d Dialect) outbox() string {
	if d.Tenant == nil {
		return outboxTable
	}
	return string(quoted(d.Tenant.Control)) + outboxTable
}

// ClaimEvents implements [svc.OutboxStore].
func (s *Store) ClaimEvents(
	ctx context.Context, now, until time.Time, limit int,
) ([]svc.Event, error) {
	longest := outbox.Longest(until).UnixMicro()
	free, err := oneOrNil(ctx, s.db.reading(), scanValue[string], `SELECT id FROM svc_outbox
		WHERE claimed_until <= $1 OR claimed_until > $2 ORDER BY id LIMIT 1`, now.UnixMicro(), longest)
	if err != nil || free == nil {
		return nil, s.fault(ctx, "claim events", err)
	}
	var events []svc.Event
	err = s.transact(ctx, "claim events", func(ctx context.Context, tx session) (err error) {
		if err := tx.lock(ctx, "outbox"); err != nil {
			return err
		}
		events, err = all(ctx, tx, scanEvent, `UPDATE svc_outbox SET claimed_until = $1
			WHERE id IN (SELECT id FROM svc_outbox
				WHERE claimed_until <= $2 OR claimed_until > $3 ORDER BY id LIMIT ($4 + 0))
			RETURNING `+eventColumns+rowColumns,
			until.UnixMicro(), now.UnixMicro(), longest, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(events, func(a, b svc.Event) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return events, nil
}

// HasEvents reports whether the outbox has events, claimed or not.
func (s *Store) HasEvents(ctx context.Context) (bool, error) {
	id, err := oneOrNil(ctx, s.db.reading(), scanValue[string],
		`SELECT id FROM svc_outbox ORDER BY id LIMIT 1`)
	return id != nil, s.fault(ctx, "look for events", err)
}

// CountEvents implements [svc.StatsStore].
func (s *Store) CountEvents(ctx context.Context, most int) (int, error) {
	n, err := one(ctx, s.db.reading(), scanValue[int], `SELECT COUNT(*) FROM (SELECT 1 AS one FROM `+
		s.dialect.outbox()+` LIMIT ($1 + 0)) t`, most)
	return n, s.fault(ctx, "count events", err)
}

// DeleteEvents implements [svc.OutboxStore].
func (s *Store) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	return s.transact(ctx, "delete events", func(ctx context.Context, tx session) error {
		for _, id := range ids {
			_, err := tx.exec(ctx, `DELETE FROM svc_outbox WHERE id = $1`, id.String())
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// eventColumns are the columns of an event, in the outbox and in the audit log.
const eventColumns = `id, happened_at, actor_kind, actor_id, actor_key, action,
	target_kind, target_id, target_scope, target_owner, target_holder_kind, target_holder_id`

// rowColumns are the columns of an event that most events leave empty: its rows of access and its
// tenant.
const rowColumns = `, row_was, row_is, tenant`

func eventArgs(e svc.Event) []any {
	t := e.Target
	return []any{e.ID.String(), e.Time.UnixMicro(), e.Actor.Kind, e.Actor.ID, e.ActorKey, e.Action,
		t.Kind, t.ID, t.Scope, t.Owner, t.Holder.Kind, t.Holder.ID}
}

func rowArgs(e svc.Event) []any { return []any{string(e.Was), string(e.Is), e.Tenant} }

func scanEvent(row scanner) (svc.Event, error) {
	var e eventRow
	if err := row.Scan(slices.Concat(e.columns(), e.rows())...); err != nil {
		return svc.Event{}, err
	}
	return e.event()
}

// eventRow holds the columns of an event.
type eventRow struct {
	svc.Event
	id string
}

func (r *eventRow) columns() []any {
	e, t := &r.Event, &r.Target
	return []any{&r.id, micro{&e.Time}, &e.Actor.Kind, &e.Actor.ID, &e.ActorKey, &e.Action,
		&t.Kind, &t.ID, &t.Scope, &t.Owner, &t.Holder.Kind, &t.Holder.ID}
}

func (r *eventRow) rows() []any { return []any{(*[]byte)(&r.Was), (*[]byte)(&r.Is), &r.Tenant} }

func (r *eventRow) event() (e svc.Event, err error) {
	e = r.Event
	if len(e.Was) == 0 {
		e.Was = nil
	}
	if len(e.Is) == 0 {
		e.Is = nil
	}
	e.ID, err = uuid.Parse(r.id)
	return e, err
}
