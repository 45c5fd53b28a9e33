package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"runtime"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/mount"
	"github.com/extsvc/svc/internal/rate"
	"github.com/extsvc/svc/internal/turns"
)

// NewTenants returns the HTTP interface of many tenants. Each request names its tenant, in the
// segment {tenant} of [Options].Prefix ("/t/{tenant}/ext/svc"), or by [Options].Tenant. NewTenants
// panics when there is neither. Where the host cuts the prefix off, it needs Tenant. A route of the
// host below [Handler.Protect] may have a {tenant} of its own ("/memories/{tenant}").
//
// A request without a bearer, or without a session where there are sessions, gets 401 for every
// name. With a bearer, an unknown, suspended or dropped tenant is 404. A tenant that cannot be opened
// is 503. No request makes a tenant. A request holds its tenant open until it is answered.
//
// The functions of Options read the name of a tenant that exists with r.PathValue("tenant").
func NewTenants(tenants *svc.Tenants, options Options) *Handler {
	h := newHandler(options)
	h.tenants = tenants
	if options.TenantRate >= 0 {
		usual := tenantRate * runtime.GOMAXPROCS(0)
		h.turns = turns.New(turns.Rules{PerSecond: cmp.Or(options.TenantRate, usual)})
		h.refused = turns.New(turns.Rules{PerSecond: usual, Always: true})
	}
	if options.Tenant == nil && !h.prefix.Has(mount.Tenant) {
		panic("httpapi: NewTenants needs {tenant} in Options.Prefix, or Options.Tenant")
	}
	return h
}

// tenantRate is the default of Options.TenantRate, and the rate of refusals, for each processor.
const tenantRate = 500

// takeTurn waits for the turn of a tenant's request. Turns go round among the callers of the tenant.
// leave ends it.
func (h *Handler) takeTurn(ctx context.Context, by svc.Identity) (leave func(), err error) {
	line := turns.Line{Owner: h.tenant, Kind: string(by.Kind), ID: by.ID}
	leave, err = h.turns.Enter(ctx, line, 0, turns.Patience)
	switch {
	case errors.Is(err, turns.ErrLate):
		err = tooMany(turns.Patience)
	case err != nil:
		err = &svc.Error{Code: svc.CodeUnavailable, Message: "the request ended while it waited", Err: err}
	}
	return leave, err
}

// holdBack waits until a request that is not admitted may be answered: wrong keys come in floods as
// well. Nobody else waits for them, and they wait for each other, whatever tenant they name.
func (h *Handler) holdBack(ctx context.Context, status int) (leave func()) {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests:
		return h.refused.Pause(ctx, turns.Line{})
	}
	return func() {}
}

// in calls serve with the Handler of the request's tenant, which has a service.
func (h *Handler) in(a *answer, r *http.Request, serve func(*Handler) error) error {
	if h.tenants == nil {
		return serve(h)
	}
	session := h.bySession(r)
	if !session && bearerOf(r) == "" {
		return challenge(hasCredential(r))
	}
	known := false
	name := h.prefix.TenantOf(r, h.options.Tenant)
	err := h.tenants.Use(r.Context(), name, func(service *svc.Service) error {
		known = true
		own := *h
		own.tenants, own.service, own.tenant = nil, service, name
		a.tenant = name
		r.SetPathValue(mount.Tenant, name)
		return serve(&own)
	})
	if !known && svc.ErrorCode(err) == svc.CodeUnavailable {
		a.tenant = name // it exists, or nobody can tell
	}
	if !known && session && svc.ErrorCode(err) == svc.CodeNotFound {
		return challenge(false) // whether there is a session is not known
	}
	return err
}

// rateKey returns what the rate of a key is counted under. Tenants may have keys of the same id:
// copies of one database.
func (h *Handler) rateKey(keyID string) (key rate.Key) {
	if h.tenant == "" {
		copy(key[:], keyID)
		return key
	}
	sum := sha256.Sum256([]byte(h.tenant + "/" + keyID))
	copy(key[:], sum[:])
	return key
}
