package main

import (
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

// Step 5: a page. Its form calls a route of step 4 with the session of the browser. svc refuses
// requests with a session that a page of another origin sends.

// signedIn tells svc who sends a request without a key.
func (d *desk) signedIn(r *http.Request) (svc.Principal, error) {
	user, ok := d.sessionUser(r)
	if !ok {
		return svc.Principal{}, svc.ErrUnauthenticated
	}
	return svc.Principal{Kind: svc.KindUser, ID: user}, nil
}

// page shows the queues that the user may read.
func (d *desk) page(w http.ResponseWriter, r *http.Request) error {
	who, _ := httpapi.PrincipalFrom(r.Context())
	var queues []queue
	for _, team := range rules.Groups {
		q, err := d.queue(r, who, team.ID)
		if err != nil {
			return err
		}
		if q != nil {
			queues = append(queues, *q)
		}
	}
	show(w, who.ID, queues)
	return nil
}

// queue returns a queue, or nil when the user may not read it.
func (d *desk) queue(r *http.Request, who svc.Principal, name string) (*queue, error) {
	by, err := d.service.Decide(r.Context(), who, actionRead, name, svc.Context{})
	if err != nil || !by.Allowed() {
		return nil, err
	}
	tickets, err := d.shown(r.Context(), name, by)
	if err != nil {
		return nil, err
	}
	may, err := d.service.May(r.Context(), who, actionAnswer, name)
	return &queue{name, tickets, may}, err
}
