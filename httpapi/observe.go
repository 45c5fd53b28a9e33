package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
)

// Observer receives requests for metrics and traces. The Handler calls it from several goroutines
// concurrently. A slow Observer makes its request slow.
type Observer interface {
	// Observe is called once for each request, after it was answered or cut off. A panic in Observe
	// is a panic of the request.
	Observe(ctx context.Context, o Observation)
}

// Observation is a request and its answer. It holds no secret. Only Caller, Tenant and RequestID
// have an unbounded number of values; do not use them as labels of metrics.
type Observation struct {
	// Route is the pattern of the route, "GET /ext/svc/admin/templates/{template_id}", and for a
	// route of the host the Pattern that its mux has set. "": the path has no route, the caller of
	// the interface is not known, or the host's mux sets no Pattern.
	Route string
	// Status is that of the answer. 0: it was cut off before it began. A handler of the host that
	// writes nothing counts as 200, as net/http answers: what a framework writes when the handler
	// has returned, as echo does with an error, is not seen.
	Status    int
	Code      svc.Code     // code of the problem; "": no problem
	Caller    svc.Identity // zero: not known
	Tenant    string       // "": no tenant's request, or the tenant is not known
	RequestID string
	Began     time.Time
	Took      time.Duration // until the whole answer was written
	Bytes     int64         // bytes of the body that were written
	// Err is why the status is 500 or above, or why the answer was cut off; nil otherwise. Show it
	// in logs, never to callers.
	Err error
}

// identify gives a request its id, once: the host's id, else the client's, else a new one.
func (h *Handler) identify(a *answer, r *http.Request) {
	if a.RequestID == "" {
		a.RequestID, a.named = inbound.Identify(a, r, h.mask)
	}
}

// dropRequestID takes the id that the Handler has set out of the answer, not out of the log:
// answers that must not differ have none.
func (a *answer) dropRequestID() {
	if a.named {
		a.Header().Del(inbound.RequestIDHeader)
	}
}

// report reports an answer to the Logger and then to the Observer, also after a panic. The Logger
// is first because an Observer may panic.
func (h *Handler) report(a *answer, r *http.Request) {
	o := h.observed(a)
	if h.options.Observer != nil {
		defer h.options.Observer.Observe(r.Context(), o)
	}
	h.log(r, o)
}

// observed returns what is observed of an answer now.
func (h *Handler) observed(a *answer) Observation {
	o := a.Observation
	o.RequestID = h.mask(o.RequestID) // the host's middleware may have copied a header
	o.Took = time.Since(o.Began)
	return o
}

// log writes the record of a request. Text from a caller, a store or the host's middleware may hold
// a key by mistake, so log masks it. It omits the path, where that is most likely.
func (h *Handler) log(r *http.Request, o Observation) {
	defer func() { _ = recover() }() // of the Logger: it must not cut off what was answered
	level, message := slog.LevelInfo, "svc: request"
	if o.Err != nil {
		message = "svc: request failed"
		if !inbound.Left(r) {
			level = slog.LevelError
		}
		if errors.Is(o.Err, svc.ErrBadEntry) { // the publisher's fault, of one template
			level = min(level, slog.LevelWarn)
		}
	}
	if !h.options.Logger.Enabled(r.Context(), level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("method", h.clip(r.Method)), slog.String("route", o.Route),
		slog.Int("status", o.Status), slog.String("request_id", h.clip(o.RequestID)),
		slog.Duration("took", o.Took), slog.Int64("bytes", o.Bytes))
	if o.Caller != (svc.Identity{}) {
		attrs = append(attrs, slog.GroupAttrs("caller",
			slog.String("kind", string(o.Caller.Kind)), slog.String("id", h.clip(o.Caller.ID))))
	}
	if o.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", h.clip(o.Tenant)))
	}
	if o.Code != "" {
		attrs = append(attrs, slog.String("code", string(o.Code)))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.Any("error", h.withoutKeys(o.Err)))
	}
	h.options.Logger.LogAttrs(r.Context(), level, message, attrs...)
}

// withoutKeys returns the error, or its masked text when the text has keys.
func (h *Handler) withoutKeys(err error) any {
	text := err.Error()
	if masked := h.mask(text); masked != text {
		return masked
	}
	return err
}
