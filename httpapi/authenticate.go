package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// challenge is the answer of 401; sent says whether there was a credential at all.
func challenge(sent bool) error {
	header := `Bearer realm="svc"`
	if sent {
		header += `, error="invalid_token"`
	}
	return &withHeader{
		err:  &svc.Error{Code: svc.CodeUnauthenticated, Message: "a valid bearer token is required"},
		name: "WWW-Authenticate", value: header,
	}
}

// admit finds the caller, who must not have to wait.
func (h *Handler) admit(r *http.Request) (svc.Principal, error) {
	by, err := h.authenticate(r)
	if err != nil || h.limit == nil {
		return by, err
	}
	if pause := h.limit(r, by); pause > 0 {
		seconds := int64((pause + time.Second - 1) / time.Second)
		return svc.Principal{}, &withHeader{
			err:  &svc.Error{Code: codeLimited, Message: "there were too many requests, try again later"},
			name: "Retry-After", value: strconv.FormatInt(seconds, 10),
		}
	}
	return by, nil
}

// authenticate finds the caller by its bearer.
func (h *Handler) authenticate(r *http.Request) (svc.Principal, error) {
	bearer := bearerOf(r)
	if bearer == "" {
		return svc.Principal{}, challenge(len(r.Header.Values("Authorization")) > 0)
	}
	by, err := h.service.Authenticate(r.Context(), bearer)
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		return svc.Principal{}, challenge(true)
	}
	return by, err
}

// judgeAgain authenticates the caller of a request again whose body has come: that may be long
// after its headers, and the bearer may have ended meanwhile.
func (h *Handler) judgeAgain(r *request) error {
	if r.ContentLength == 0 {
		return nil // there was nothing to wait for
	}
	by, err := h.authenticate(r.Request)
	if err != nil {
		return err
	}
	if by.Identity() != r.by.Identity() {
		return challenge(true) // the bearer is somebody else's by now: the path was not opened for them
	}
	r.by = by
	return nil
}

// bearerOf returns the bearer (RFC 6750, section 2.1) of a request's one Authorization header, "" when there is none.
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
