package httpapi

import (
	"net/http"
	"strings"

	"github.com/extsvc/svc"
)

// challengeError is an answer of 401.
type challengeError struct{ sent bool } // whether a credential was sent at all

func (e *challengeError) Error() string { return "unauthenticated" }

func (e *challengeError) header() string {
	if e.sent {
		return `Bearer realm="svc", error="invalid_token"`
	}
	return `Bearer realm="svc"`
}

// authenticate finds the caller by the bearer (RFC 6750, section 2.1) of its one Authorization header.
func (h *Handler) authenticate(r *http.Request) (svc.Principal, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return svc.Principal{}, &challengeError{}
	}
	scheme, bearer, _ := strings.Cut(headers[0], " ")
	bearer = strings.TrimLeft(bearer, " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || bearer == "" {
		return svc.Principal{}, &challengeError{sent: true}
	}
	by, err := h.service.Authenticate(r.Context(), bearer)
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		return svc.Principal{}, &challengeError{sent: true}
	}
	return by, err
}
