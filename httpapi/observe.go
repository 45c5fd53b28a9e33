package httpapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/extsvc/svc"
)

// Observer is told of requests, for metrics and traces. Its method is called concurrently, and makes its request slow where
// it is slow.
type Observer interface {
	// Observe is called once for each request, when it was answered, or cut off; what it panics with is the request's own panic.
	Observe(ctx context.Context, o Observation)
}

// Observation is a request, and what was answered. It holds no secret, and nothing that makes metrics grow without bound but Caller and
// RequestID.
type Observation struct {
	Route     string       // the pattern, "GET /ext/svc/admin/templates/{template_id}"; "" it led to none, or its caller was not known
	Status    int          // of the answer; 0: it was cut off before there was one
	Code      svc.Code     // of the problem; "" there was none
	Caller    svc.Identity // zero: not known
	RequestID string
	Began     time.Time
	Took      time.Duration // until all was written
	Bytes     int64         // of the body that was written
	Err       error         // why the answer is of 500 or above, or was cut off; nil otherwise. For logs, never for callers
}

// requestIDHeader names a request to whoever reads the logs.
const requestIDHeader = "X-Request-Id"

// identify names a request, once: as the host has named it, else as the client has, else anew.
func (h *Handler) identify(a *answer, r *http.Request) {
	if a.requestID != "" {
		return
	}
	if a.requestID = a.Header().Get(requestIDHeader); a.requestID != "" {
		return
	}
	if a.requestID = r.Header.Get(requestIDHeader); !h.isRequestID(a.requestID) || len(r.Header.Values(requestIDHeader)) > 1 {
		a.requestID = rand.Text()
	}
	a.named = true
	a.Header().Set(requestIDHeader, a.requestID)
}

// isRequestID reports whether an id of a client may be taken over into headers and logs: it is no key, either.
func (h *Handler) isRequestID(id string) bool {
	const marks = "-_.:/+=@~"
	return 0 < len(id) && len(id) <= 128 && h.mask(id) == id && !strings.ContainsFunc(id, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(marks, r))
	})
}

// tell tells the host of an answer, also when it is cut off by a panic: the log first, because an Observer may panic.
func (h *Handler) tell(a *answer, r *http.Request, began time.Time) {
	o := Observation{
		Route: a.route, Status: a.status, Code: a.code, Caller: a.caller, RequestID: a.requestID,
		Began: began, Took: time.Since(began), Bytes: a.bytes, Err: a.err,
	}
	if h.observer != nil {
		defer h.observer.Observe(r.Context(), o)
	}
	h.log(r, o)
}
