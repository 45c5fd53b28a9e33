package httpapi

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// eventsLimit is the number of events on a page unless the request sets a limit.
const eventsLimit = 100

func (h *Handler) listEvents(w http.ResponseWriter, r *request) error {
	query, err := r.query.events()
	if err != nil {
		return err
	}
	p, err := r.query.page()
	if err != nil {
		return err
	}
	if limit, _ := r.query.text("limit"); limit == "" {
		p.limit = eventsLimit
	}
	if query.Before, err = p.number(); err != nil {
		return err
	}
	query.Limit = p.limit + 1 // one more tells whether there is a next page
	rows := h.service.Audit.Records(r.Context(), r.by, query)
	position := func(e svc.AuditRecord) []string {
		return []string{strconv.FormatInt(e.Number, 10), ""}
	}
	return sendPage(w, r, p, `{"events":[`, "]}", rows, wireEvent, position)
}

// events reads the parameters of a list of events.
func (q query) events() (query svc.AuditQuery, err error) {
	var since, until string
	if err := q.texts(map[string]*string{
		"actor": &query.ActorID, "actor_kind": (*string)(&query.ActorKind),
		"target": &query.TargetID, "target_kind": (*string)(&query.TargetKind),
		"since": &since, "until": &until,
	}); err != nil {
		return query, err
	}
	if query.Since, err = optionalInstant("since", since); err != nil {
		return query, err
	}
	query.Until, err = optionalInstant("until", until)
	return query, err
}

func optionalInstant(parameter, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return instant(parameter, text)
}

// number returns the number at which the previous page ended; 0: from the start.
func (p page) number() (int64, error) {
	if p.after == nil {
		return 0, nil
	}
	number, err := strconv.ParseInt(p.after[0], 10, 64)
	if err != nil || number < 1 || strconv.FormatInt(number, 10) != p.after[0] || p.after[1] != "" {
		return 0, svc.Invalid("cursor", notACursor)
	}
	return number, nil
}

func wireEvent(r svc.AuditRecord) encoded {
	return encoded{wire.Event{
		Number: r.Number, ID: r.ID.String(), Time: wire.Time{Time: r.Time},
		Actor:  wire.Actor{Identity: wireIdentity(r.Actor), KeyID: orNull(r.ActorKey)},
		Action: string(r.Action), Target: wireTarget(r.Target),
		Previous: orNull(hex.EncodeToString(r.Previous)), Hash: hex.EncodeToString(r.Hash),
	}}
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
