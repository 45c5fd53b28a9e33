package adminpage

import (
	"errors"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// auditView is what the page Audit shows.
type auditView struct {
	Asked  url.Values
	Events []svc.AuditRecord
	Older  string // the address of the next page; "": this is the last one
}

// audit lists the kept events, with the parameters of GET /admin/events.
func (v *visit) audit() error {
	in := v.r.URL.Query()
	body := auditView{Asked: in}
	query, err := auditQuery(in)
	if err == nil {
		var more bool
		body.Events, more, err = take(v.h.service.Audit.Records(v.r.Context(), v.by, query))
		if n := fitting(body.Events); n < len(body.Events) {
			body.Events, more = body.Events[:n], true
		}
		if more {
			last := body.Events[len(body.Events)-1].Number
			body.Older = with("audit", in, "cursor", strconv.FormatInt(last, 10))
		}
	}
	var page view
	if svc.ErrorCode(err) == svc.CodeInvalid {
		page = v.refusal(err)
	} else if err != nil {
		return err
	}
	page.Template, page.Title, page.Body = "audit", "Audit", body
	return v.render(page)
}

// records lists kept events that a page shows next to other things: none for a caller who may not
// read them, or on a server that keeps none.
func (v *visit) records(query svc.AuditQuery) iter.Seq2[svc.AuditRecord, error] {
	return func(yield func(svc.AuditRecord, error) bool) {
		if !v.h.service.Audit.Keeps() {
			return
		}
		for record, err := range v.h.service.Audit.Records(v.r.Context(), v.by, query) {
			if svc.ErrorCode(err) == svc.CodeForbidden || !yield(record, err) {
				return
			}
		}
	}
}

// maxRows limits the rows before and after that a page shows, in bytes: a larger page of events
// ends early.
const maxRows = 24 << 10

// fitting returns how many events fit into a page, one at least.
func fitting(events []svc.AuditRecord) int {
	size := 0
	for i, e := range events {
		if size += len(e.Was) + len(e.Is); size > maxRows {
			return max(i, 1)
		}
	}
	return len(events)
}

// pagesOf are where the pages of targets are.
var pagesOf = map[event.TargetKind]string{
	event.TargetUser:           "access/users/",
	event.TargetGroup:          "access/groups/",
	event.TargetPolicy:         "access/policies/",
	event.TargetServiceAccount: "access/accounts/",
	event.TargetBankPolicy:     "access/banks/",
	event.TargetAPIKey:         "keys/",
	event.TargetTemplate:       "templates/",
	event.TargetSource:         "sources/",
}

// placeOf returns the address of the page of a target; "": it has none.
func placeOf(t svc.Target) string {
	page := pagesOf[t.Kind]
	if page == "" || t.Owner != "" {
		return ""
	}
	return page + url.PathEscape(t.ID)
}

func auditQuery(in url.Values) (svc.AuditQuery, error) {
	query := svc.AuditQuery{
		ActorID: in.Get("actor"), ActorKind: svc.Kind(in.Get("actor_kind")),
		TargetID: in.Get("target"), TargetKind: event.TargetKind(in.Get("target_kind")),
		Limit: pageRows + 1,
	}
	var since, until, cursor error
	query.Since, since = instant("since", in.Get("since"), dayBegins)
	if query.Until, until = instant("until", in.Get("until"), dayEnds); !query.Until.IsZero() {
		query.Until = query.Until.Add(time.Microsecond) // the end counts
	}
	if text := in.Get("cursor"); text != "" {
		number, err := strconv.ParseInt(text, 10, 64)
		if query.Before = number; err != nil || number < 1 {
			cursor = svc.Invalid("cursor", "is not the number of an event: start at the newest")
		}
	}
	return query, errors.Join(since, until, cursor)
}
