package httpapi

import (
	"log/slog"
	"net/http"

	"github.com/extsvc/svc"
)

// log writes the record of a request. Text from a caller, a store or the host's middleware may hold
// a key by mistake, so log masks it. It omits the path, where that is most likely.
func (h *Handler) log(r *http.Request, o Observation) {
	level, message := slog.LevelInfo, "svc: request"
	if o.Err != nil {
		message = "svc: request failed"
		if r.Context().Err() == nil { // an ended context means that the client has left
			level = slog.LevelError
		}
	}
	if !h.logger.Enabled(r.Context(), level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 9),
		slog.String("method", h.clip(r.Method)), slog.String("route", o.Route),
		slog.Int("status", o.Status), slog.String("request_id", h.clip(o.RequestID)),
		slog.Duration("took", o.Took), slog.Int64("bytes", o.Bytes))
	if o.Caller != (svc.Identity{}) {
		attrs = append(attrs, slog.GroupAttrs("caller",
			slog.String("kind", string(o.Caller.Kind)), slog.String("id", h.clip(o.Caller.ID))))
	}
	if o.Code != "" {
		attrs = append(attrs, slog.String("code", string(o.Code)))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.Any("error", h.withoutKeys(o.Err)))
	}
	h.logger.LogAttrs(r.Context(), level, message, attrs...)
}

// withoutKeys returns the error, or its masked text when the text has keys.
func (h *Handler) withoutKeys(err error) any {
	text := err.Error()
	if masked := h.mask(text); masked != text {
		return masked
	}
	return err
}
