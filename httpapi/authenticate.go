package httpapi

import (
	"errors"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
)

// challenge returns the error for a 401; sent says whether the request had a credential.
func challenge(sent bool) error {
	header := `Bearer realm="svc"`
	if sent {
		header += `, error="invalid_token"`
	}
	const message = "a valid bearer token is required"
	return refuse(svc.CodeUnauthenticated, message, "WWW-Authenticate", header)
}

// errUnauthenticated is the error of a request whose caller is not known.
var errUnauthenticated error = &svc.Error{Code: svc.CodeUnauthenticated}

// challenged returns an error as the interface answers it: 401 has a challenge.
func challenged(err error, sent func() bool) error {
	_, own := errors.AsType[*withHeader](err)
	if !own && svc.ErrorCode(err) == svc.CodeUnauthenticated {
		return challenge(sent())
	}
	return err
}

// admit returns the caller of a request, or an error. It applies the rate of the caller's key, and
// then the host's limit: so a key that runs wild does not reach the host.
func (h *Handler) admit(a *answer, r *http.Request) (svc.Principal, error) {
	if h.served != nil { // a function of the host may be slow
		r = r.WithContext(h.served)
	}
	by, err := h.authenticate(r)
	if err != nil {
		return by, err
	}
	a.Caller = by.Identity()
	if err := h.count(a, r, by); err != nil {
		return by, err
	}
	if h.options.Limit != nil {
		if pause := h.options.Limit(r, by); pause > 0 {
			return by, tooMany(pause)
		}
	}
	a.admitted = true
	return by, nil
}

// authenticate returns the caller that the bearer, or else the host's session, identifies.
func (h *Handler) authenticate(r *http.Request) (svc.Principal, error) {
	if h.bySession(r) {
		return h.authenticateSession(r)
	}
	bearer := h.bearerOf(r)
	if bearer == "" {
		return svc.Principal{}, errUnauthenticated
	}
	return h.service.Authenticate(r.Context(), bearer)
}

// reauthenticate authenticates the caller a second time, after the body was read. The body can
// arrive long after the headers, and the bearer or the session may end in the meantime.
func (h *Handler) reauthenticate(r *request) error {
	if r.ContentLength == 0 {
		return nil // no body, so no delay
	}
	by, err := h.authenticate(r.Request)
	if err != nil {
		return err
	}
	if by.Identity() != r.by.Identity() {
		return errUnauthenticated // it now identifies another principal
	}
	r.by = by
	return nil
}

// hasCredential reports whether a request has a bearer, or an Authorization header of any kind.
func (h *Handler) hasCredential(r *http.Request) bool {
	return h.bearerOf(r) != "" || hasAuthorization(r)
}

func hasAuthorization(r *http.Request) bool { return len(r.Header.Values("Authorization")) > 0 }

// bearerOf returns the bearer that the host finds in a request, or else that of its Authorization
// header. For introspection, HTTP Basic with the bearer as the password is as good: programs that
// know RFC 7662 send no other (RFC 6749, section 2.3.1). "": there is none.
func (h *Handler) bearerOf(r *http.Request) string {
	if h.options.Bearer != nil {
		if bearer := h.options.Bearer(r); bearer != "" {
			return bearer
		}
	}
	if bearer := inbound.Bearer(r.Header); bearer != "" || h.prefix.Rest(r) != introspectPath {
		return bearer
	}
	return inbound.Basic(r.Header)
}
