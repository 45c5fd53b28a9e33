package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// Step 4: the routes. Require let each of these requests through: the caller may do the action on
// the queue. The parameters of the decision say how.

// allowed returns a parameter of a decision. Where no policy sets it, it is the zero T: no rows, no
// columns, no priority.
func allowed[T any](by svc.Decision, name string) T {
	value, _ := by.Parameter(name)
	t, _ := value.(T)
	return t
}

// open writes a ticket with a priority that the caller may choose.
func (d *desk) open(_ http.ResponseWriter, r *http.Request) error {
	who, _ := httpapi.PrincipalFrom(r.Context())
	by, _ := httpapi.DecisionFrom(r.Context())
	subject, text := r.FormValue("subject"), r.FormValue("text")
	priority := cmp.Or(r.FormValue("priority"), priorities[0])
	rank := slices.Index(priorities, priority)
	most := slices.Index(priorities, allowed[string](by, "priority"))
	switch {
	case subject == "":
		return svc.Invalid("/subject", "is required")
	case rank < 0:
		return svc.Invalid("/priority", "must be low, normal or urgent")
	case rank > most:
		return &svc.Error{Code: svc.CodeForbidden, Message: "you may not choose this priority"}
	}
	return d.addTicket(r.Context(), r.PathValue("queue"), who.ID, subject, text, priority)
}

// shown returns the tickets of a queue, as many and as much of them as the decision allows.
func (d *desk) shown(ctx context.Context, queue string, by svc.Decision) ([]ticket, error) {
	tickets, err := d.newest(ctx, queue, allowed[int64](by, "row_limit"))
	for i, t := range tickets {
		tickets[i] = t.only(allowed[[]string](by, "columns"))
	}
	return tickets, err
}

func (d *desk) list(w http.ResponseWriter, r *http.Request) error {
	by, _ := httpapi.DecisionFrom(r.Context())
	tickets, err := d.shown(r.Context(), r.PathValue("queue"), by)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(tickets) // an error means that the client is gone
	return nil
}

// answer answers a ticket. It looks only in the queue that Require has asked about.
func (d *desk) answer(w http.ResponseWriter, r *http.Request) error {
	found, err := d.answerTicket(
		r.Context(), r.PathValue("queue"), r.PathValue("id"), r.FormValue("text"))
	if err != nil {
		return err
	}
	if !found {
		return &svc.Error{Code: svc.CodeNotFound, Message: "the queue has no such ticket"}
	}
	http.Redirect(w, r, "/", http.StatusSeeOther) // for the page
	return nil
}
