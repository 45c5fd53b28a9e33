package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/routing"
)

// NewTenants returns the HTTP interface of many tenants. Each request names its tenant, in the
// segment {tenant} of [Options].Prefix ("/t/{tenant}/ext/svc"), or by [Options].Tenant. NewTenants
// panics when there is neither. Where the host cuts the prefix off, it needs Tenant. A route of the
// host below [Handler.Protect] may have its own {tenant} ("/memories/{tenant}").
//
// A request without a bearer, or without a session where there are sessions, gets 401 for every
// name. With a bearer, an unknown, suspended or dropped tenant is 404. A tenant that cannot be
// opened is
// 503. No request makes a tenant. A request holds its tenant open until it is answered. When the
// tenant is suspended or dropped in the meantime, the request writes nothing any longer, and its
// context and the reading of its body end after [svc.TenantGrace].
//
// The functions of Options read the name of a tenant that exists with r.PathValue("tenant").
func NewTenants(tenants *svc.Tenants, options Options) *Handler {
	h := newHandler(options)
	h.tenants = tenants
	if options.TenantRate >= 0 {
		usual := tenantRate * runtime.GOMAXPROCS(0)
		h.queue = fairqueue.New(fairqueue.Rules{PerSecond: cmp.Or(options.TenantRate, usual)})
		h.refused = fairqueue.New(fairqueue.Rules{PerSecond: usual, Always: true})
	}
	if options.Tenant == nil && !h.prefix.Has(routing.Tenant) {
		panic("httpapi: NewTenants needs {tenant} in Options.Prefix, or Options.Tenant")
	}
	if tenants == nil {
		panic("httpapi: NewTenants needs Tenants: make them with svc.NewTenants")
	}
	h.documents = documentsWith(tenants.Parameters())
	return h
}

// tenantRate is the default of Options.TenantRate, and the rate of refusals, for each processor.
const tenantRate = 500

// takeTurn waits for the turn of a tenant's request. Turns go round among the callers of the
// tenant. leave ends it.
func (h *Handler) takeTurn(ctx context.Context, by svc.Identity) (leave func(), err error) {
	line := fairqueue.Flow{Owner: h.tenant, Kind: string(by.Kind), ID: by.ID}
	leave, err = h.queue.Acquire(ctx, line, 0, fairqueue.Patience)
	switch {
	case errors.Is(err, fairqueue.ErrLate):
		err = tooMany(fairqueue.Patience)
	case err != nil:
		err = &svc.Error{
			Code:    svc.CodeUnavailable,
			Message: "the request ended while it waited",
			Err:     err,
		}
	}
	return leave, err
}

// holdBack waits until a request that is not admitted may be answered: wrong keys come in floods as
// well. Nobody else waits for them, and they wait for each other, whatever tenant they name.
func (h *Handler) holdBack(ctx context.Context, status int) (leave func()) {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests:
		return h.refused.Wait(ctx, fairqueue.Flow{})
	}
	return func() {}
}

// in calls serve with the Handler of the request's tenant, which has a service.
func (h *Handler) in(a *answer, r *http.Request, serve func(*Handler) error) error {
	if h.tenants == nil {
		return serve(h)
	}
	session := h.bySession(r)
	if !session && h.bearerOf(r) == "" {
		return errUnauthenticated
	}
	known := false
	name := h.prefix.TenantOf(r, h.options.Tenant)
	err := h.tenants.UseContext(r.Context(), name, func(
		ctx context.Context, service *svc.Service,
	) error {
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { // a body may keep the request waiting
			_ = http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
			close(ended)
		})
		defer func() {
			if !stop() {
				<-ended // nothing uses the ResponseWriter after the handler
			}
		}()
		known = true
		own := *h
		own.tenants, own.service, own.tenant, own.served = nil, service, name, ctx
		a.Tenant = name
		r.SetPathValue(routing.Tenant, name)
		return serve(&own)
	})
	if !known && svc.ErrorCode(err) == svc.CodeUnavailable {
		a.Tenant = name // it exists, or nobody can tell
	}
	if !known && session && svc.ErrorCode(err) == svc.CodeNotFound {
		return errUnauthenticated // whether there is a session is not known
	}
	return err
}
