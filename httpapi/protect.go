package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/extsvc/svc"
)

type principalKey struct{}

// Protect authenticates requests to next, a handler of the host. It passes a request to next if the
// Service accepts its bearer, or its session with [Options].Principal; next reads the caller with
// [PrincipalFrom]. Protect answers all other requests as the interface does: 401, 403 for a page of
// another origin, 429, or 503 when it cannot check the bearer or the session. It checks no rights:
// next asks [svc.Service.Decide] for them.
func (h *Handler) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if by, ok := h.letIn(w, r); ok {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, by)))
		}
	})
}

// letIn returns the caller, or answers with a problem, also when a function of the host panics.
func (h *Handler) letIn(w http.ResponseWriter, r *http.Request) (by svc.Principal, ok bool) {
	a := &answer{ResponseWriter: w}
	defer func(began time.Time) {
		if !ok {
			h.report(a, r, began)
		}
	}(time.Now())
	defer h.recover(a, r)
	err := h.in(a, r, func(h *Handler) (err error) {
		by, err = h.admit(a, r)
		return err
	})
	if err != nil {
		h.fail(a, r, err)
	}
	return by, err == nil
}

// PrincipalFrom returns the principal of a request that [Handler.Protect] let through. false: the
// request did not pass Protect.
func PrincipalFrom(ctx context.Context) (svc.Principal, bool) {
	by, ok := ctx.Value(principalKey{}).(svc.Principal)
	return by, ok
}
