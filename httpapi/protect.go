package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/extsvc/svc"
)

type principalKey struct{}

// Protect lets requests through to next, which is the host's own, that carry a bearer which the service accepts; next finds
// whose it is with [PrincipalFrom]. All others get the answers that the interface itself gives: 401, 429,
// or 503 when it cannot be told just now. What the principal may do is for next to ask: [svc.Service.Decide].
func (h *Handler) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if by, ok := h.letIn(w, r); ok {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, by)))
		}
	})
}

// letIn finds the caller, or answers, also when the host's Authenticator panics.
func (h *Handler) letIn(w http.ResponseWriter, r *http.Request) (by svc.Principal, ok bool) {
	a := &answer{ResponseWriter: w}
	defer func(began time.Time) {
		if !ok {
			h.tell(a, r, began)
		}
	}(time.Now())
	defer h.recover(a, r)
	by, err := h.admit(r)
	if err != nil {
		h.fail(a, r, err)
	}
	return by, err == nil
}

// PrincipalFrom returns the principal of a request that [Handler.Protect] let through. false: the request did not come that way.
func PrincipalFrom(ctx context.Context) (svc.Principal, bool) {
	by, ok := ctx.Value(principalKey{}).(svc.Principal)
	return by, ok
}
