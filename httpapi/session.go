package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
	"github.com/extsvc/svc/internal/text"
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
		return svc.Principal{}, challenge(false)
	} else if err != nil {
		return svc.Principal{}, &svc.Error{
			Code:    svc.CodeUnavailable,
			Message: "the session cannot be checked now: try again later",
			Err:     h.hideIn(err, r),
		}
	}
	err = h.service.Accept(r.Context(), p)
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		err = challenge(false)
	}
	return p, err
}

// hideIn returns an error of the host without the credentials of a request. An error whose text
// has none is returned as it is.
func (h *Handler) hideIn(err error, r *http.Request) error {
	if hidden := h.hideCredentials(r, err.Error()); hidden != err.Error() {
		return errors.New(hidden)
	}
	return err
}

// hideCredentials masks the bearers and the cookies of a request in a text. The longest come first:
// a cookie that is part of another one must not leave the rest of that.
func (h *Handler) hideCredentials(r *http.Request, s string) string {
	secrets := append([]string{inbound.Bearer(r.Header)}, r.Header.Values("Cookie")...)
	func() {
		defer func() { _ = recover() }() // Options.Bearer, whose panic it may be that is hidden
		secrets = append(secrets, h.bearerOf(r))
	}()
	for _, cookie := range r.Cookies() {
		secrets = append(secrets, cookie.Value)
		if plain, err := url.PathUnescape(cookie.Value); err == nil {
			secrets = append(secrets, plain)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		s = text.Hide(secret, s)
	}
	return s
}
