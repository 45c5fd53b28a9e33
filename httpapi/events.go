package httpapi

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/wire"
)

// eventsLimit is the number of events on a page unless the request sets a limit.
const eventsLimit = 100

func (h *Handler) listEvents(w http.ResponseWriter, r *request) error {
	query, err := r.query.events()
	if err != nil {
		return err
	}
	p, err := r.page()
	if err != nil {
		return err
	}
	if r.query.text("limit") == "" {
		p.Limit = eventsLimit
	}
	if query.Before, err = numberOf(p); err != nil {
		return err
	}
	query.Limit = p.Limit + 1 // one more tells whether a page follows
	return sendPage(w, r, p, eventForm, h.service.Audit.Records(r.Context(), r.by, query))
}

var eventForm = listForm[svc.AuditRecord, wire.Event]{
	open: `{"events":[`, shut: "]}", answer: wireEvent,
	position: func(e svc.AuditRecord) []string {
		return []string{strconv.FormatInt(e.Number, 10), ""}
	},
}

// events reads the parameters of a list of events.
func (q query) events() (query svc.AuditQuery, err error) {
	query = svc.AuditQuery{
		ActorID: q.text("actor"), ActorKind: svc.Kind(q.text("actor_kind")),
		TargetID: q.text("target"), TargetKind: event.TargetKind(q.text("target_kind")),
	}
	if query.Since, err = q.instant("since"); err != nil {
		return query, err
	}
	query.Until, err = q.instant("until")
	return query, err
}

// instant returns a time; zero when it is absent or empty.
func (q query) instant(key string) (time.Time, error) {
	if q.text(key) == "" {
		return time.Time{}, nil
	}
	return instant(key, q.text(key))
}

// numberOf returns the number at which the previous page ended; 0: from the start.
func numberOf(p inbound.Page) (int64, error) {
	if p.After == nil {
		return 0, nil
	}
	number, err := strconv.ParseInt(p.After[0], 10, 64)
	if err != nil || number < 1 || strconv.FormatInt(number, 10) != p.After[0] || p.After[1] != "" {
		return 0, svc.Invalid("cursor", inbound.NotACursor)
	}
	return number, nil
}

func wireEvent(r svc.AuditRecord) wire.Event {
	return wire.Event{
		Number: r.Number, ID: r.ID.String(), Time: r.Time,
		Actor:  wire.Actor{Identity: wireIdentity(r.Actor), KeyID: orNull(r.ActorKey)},
		Action: string(r.Action), Target: wireTarget(r.Target),
		Tenant: orNull(r.Tenant), Was: r.Was, Is: r.Is,
		Previous: orNull(hex.EncodeToString(r.Previous)), Salts: wire.Salts(r.Salts),
		Hash: hex.EncodeToString(r.Hash),
	}
}

func wireTarget(t svc.Target) wire.Target {
	target := wire.Target{
		Kind: string(t.Kind), ID: t.ID, Scope: orNull(string(t.Scope)), Owner: orNull(t.Owner),
	}
	if t.Holder != (svc.Identity{}) {
		target.Holder = new(wireIdentity(t.Holder))
	}
	return target
}

func wireIdentity(i svc.Identity) wire.Identity {
	return wire.Identity{Kind: string(i.Kind), ID: orNull(i.ID)}
}
