package httpapi

import (
	"log/slog"
	"net/http"

	"github.com/extsvc/svc"
)

// log records a request. What a caller, a store or the host's middleware chose may hold a key, by mistake; the path, where that happens
// most, is left out.
func (h *Handler) log(r *http.Request, o Observation) {
	level, message := slog.LevelInfo, "svc: request"
	if o.Err != nil {
		message = "svc: request failed"
		if r.Context().Err() == nil { // else the client has left: nobody's fault
			level = slog.LevelError
		}
	}
	if !h.logger.Enabled(r.Context(), level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 9),
		slog.String("method", h.clip(r.Method)), slog.String("route", o.Route), slog.Int("status", o.Status), slog.String("request_id", h.clip(o.RequestID)),
		slog.Duration("took", o.Took), slog.Int64("bytes", o.Bytes))
	if o.Caller != (svc.Identity{}) {
		attrs = append(attrs, slog.GroupAttrs("caller", slog.String("kind", string(o.Caller.Kind)), slog.String("id", h.clip(o.Caller.ID))))
	}
	if o.Code != "" {
		attrs = append(attrs, slog.String("code", string(o.Code)))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.Any("error", h.withoutKeys(o.Err)))
	}
	h.logger.LogAttrs(r.Context(), level, message, attrs...)
}

// withoutKeys is what to log of an error: the error itself unless there are keys in its text.
func (h *Handler) withoutKeys(err error) any {
	text := err.Error()
	if masked := h.mask(text); masked != text {
		return masked
	}
	return err
}
