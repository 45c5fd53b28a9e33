package httpapi

import (
	"errors"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
)

// bySession reports whether the host's session authenticates a request. A credential of any kind
// rules that out: a caller with a wrong bearer must not become another one.
func (h *Handler) bySession(r *http.Request) bool {
	return h.options.Principal != nil && !h.hasCredential(r)
}

// authenticateSession returns the principal of the host's session. Browsers send a cookie with the
// requests of every page, so it refuses those of other origins first, before they cost anything.
func (h *Handler) authenticateSession(r *http.Request) (svc.Principal, error) {
	if err := h.options.CrossOrigin.Check(r); err != nil {
		return svc.Principal{}, &svc.Error{Code: codeCrossOrigin, Err: err, Message: "a page of" +
			" another origin sent this request: send it from a page of this origin, or with a" +
			" bearer"}
	}
	p, err := h.options.Principal(r)
	if errors.Is(err, svc.ErrUnauthenticated) {
		return svc.Principal{}, errUnauthenticated
	} else if err != nil {
		return svc.Principal{}, inbound.BadSession(r, err)
	}
	return p, h.service.Accept(r.Context(), p)
}

// hideCredentials masks the bearers and the cookies of a request in a text.
func (h *Handler) hideCredentials(r *http.Request, s string) string {
	bearer := ""
	func() {
		defer func() { _ = recover() }() // Options.Bearer, whose panic it may be that is hidden
		bearer = h.bearerOf(r)
	}()
	return inbound.Hide(r, s, bearer)
}
