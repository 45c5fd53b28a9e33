package httpapi

import (
	"net/http"
	"strings"

	"github.com/extsvc/svc"
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

// admit returns the caller of a request, or an error. It applies the rate of the caller's key, and
// then the host's limit: so a key that runs wild does not reach the host.
func (h *Handler) admit(a *answer, r *http.Request) (svc.Principal, error) {
	by, err := h.authenticate(r)
	if err != nil {
		return by, err
	}
	a.caller = by.Identity()
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
	bearer := bearerOf(r)
	if bearer == "" {
		return svc.Principal{}, challenge(hasCredential(r))
	}
	by, err := h.service.Authenticate(r.Context(), bearer)
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		return svc.Principal{}, challenge(true)
	}
	return by, err
}

// reauthenticate authenticates the caller a second time, after the body was read. The body can
// arrive long after the headers, and the bearer or the session may end meanwhile.
func (h *Handler) reauthenticate(r *request) error {
	if r.ContentLength == 0 {
		return nil // no body, so no delay
	}
	by, err := h.authenticate(r.Request)
	if err != nil {
		return err
	}
	if by.Identity() != r.by.Identity() {
		return challenge(hasCredential(r.Request)) // it now identifies another principal
	}
	r.by = by
	return nil
}

// hasCredential reports whether a request has an Authorization header, also a malformed one.
func hasCredential(r *http.Request) bool { return len(r.Header.Values("Authorization")) > 0 }

// bearerOf returns the bearer (RFC 6750, section 2.1) of the one Authorization header; "" when
// there is no bearer or more than one header.
func bearerOf(r *http.Request) string {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return ""
	}
	scheme, bearer, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(bearer, " ")
}
