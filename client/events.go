package client

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"iter"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/wire"
)

// Records lists the recorded events that match a query, newest first, page by page. An error
// is the last thing yielded. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the server records
// no events).
func (c *Audit) Records(
	ctx context.Context, query svc.AuditQuery,
) iter.Seq2[svc.AuditRecord, error] {
	before := ""
	if query.Before != 0 {
		before = strconv.FormatInt(query.Before, 10)
	}
	r := at("GET /admin/events").where(
		"actor_kind", string(query.ActorKind), "actor", query.ActorID,
		"target_kind", string(query.TargetKind), "target", query.TargetID,
		"since", optionalInstant(query.Since), "until", optionalInstant(query.Until),
		"limit", strconv.Itoa(maxPage),
	)
	return list(ctx, c.conn, r.part(query.Limit, before, ""), "events", auditRecord)
}

// optionalInstant formats a time; the zero time is "".
func optionalInstant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return instant(at)
}

// auditRecord reads an event. A malformed hash or UUID becomes the zero value; the record then does
// not fit into its hash chain.
func auditRecord(in wire.Event) svc.AuditRecord {
	t := in.Target
	r := svc.AuditRecord{Number: in.Number, Event: svc.Event{
		Time: in.Time, Actor: identity(in.Actor.Identity), ActorKey: orZero(in.Actor.KeyID),
		Action: event.Action(in.Action),
		Target: svc.Target{
			Kind: event.TargetKind(t.Kind), ID: t.ID,
			Scope: svc.Scope(orZero(t.Scope)), Owner: orZero(t.Owner),
		},
		Tenant: orZero(in.Tenant), Was: orNone(in.Was), Is: orNone(in.Is),
	}, Salts: svc.AuditSalts(in.Salts)}
	if t.Holder != nil {
		r.Target.Holder = identity(*t.Holder)
	}
	r.ID, _ = uuid.Parse(in.ID)
	if in.Previous != nil {
		r.Previous, _ = hex.DecodeString(*in.Previous)
	}
	r.Hash, _ = hex.DecodeString(in.Hash)
	return r
}

// orNone returns a row of access; nil for null.
func orNone(row json.RawMessage) json.RawMessage {
	if string(row) == "null" {
		return nil
	}
	return row
}

func identity(in wire.Identity) svc.Identity {
	return svc.Identity{Kind: svc.Kind(in.Kind), ID: orZero(in.ID)}
}
