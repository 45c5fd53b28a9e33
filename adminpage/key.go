package adminpage

import (
	"net/url"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// keyView is what the page of one key shows.
type keyView struct {
	Key    keyRow
	Asked  url.Values        // for the forms of the list; empty
	Events []svc.AuditRecord // the newest; nil: none, or the caller may not read them
}

// key shows one key, also a revoked one.
func (v *visit) key() error {
	rights, err := v.keyRights()
	if err != nil {
		return err
	}
	key, err := v.h.service.Keys.Find(v.r.Context(), v.by, v.params["key_id"])
	if err != nil {
		return err
	}
	body := keyView{Key: rights.row(key, time.Now()), Asked: url.Values{"holder": {key.Holder.ID}}}
	query := svc.AuditQuery{TargetKind: event.TargetAPIKey, TargetID: key.ID, Limit: pageRows}
	for record, err := range v.records(query) {
		if err != nil {
			return err
		}
		body.Events = append(body.Events, record)
	}
	return v.render(view{Template: "key", Title: "Key " + key.Prefix, Body: body})
}
