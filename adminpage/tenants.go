package adminpage

import (
	"context"
	"net/http"
	"runtime"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
	"github.com/extsvc/svc/internal/routing"
)

// NewTenants returns the pages of many tenants. Each request names its tenant, in the segment
// {tenant} of [Options].Prefix ("/t/{tenant}/ext/svc-admin"), or by [Options].Tenant. NewTenants
// panics when there is neither. A sign-in is for one tenant. One that does not exist, is suspended
// or is dropped shows the sign-in as well, and accepts no key.
//
// A request looks for its tenant only when it has a sign-in, a key or a session of the host, and
// holds the tenant open until it is answered. The context of a request ends [svc.TenantGrace] after
// its tenant is suspended or dropped. Of the pages of one tenant, 50 begin in a second for each
// processor that Go uses, and as many of all those without a sign-in. Further ones wait up to 2
// seconds.
func NewTenants(tenants *svc.Tenants, options Options) *Handler {
	h := newHandler(options)
	h.tenants = tenants
	perSecond := pagesPerSecond * runtime.GOMAXPROCS(0)
	h.queue = fairqueue.New(fairqueue.Rules{PerSecond: perSecond, Always: true})
	if options.Tenant == nil && !h.prefix.Has(routing.Tenant) {
		panic("adminpage: NewTenants needs {tenant} in Options.Prefix, or Options.Tenant")
	}
	if tenants == nil {
		panic("adminpage: NewTenants needs Tenants: make them with svc.NewTenants")
	}
	return h
}

// pagesPerSecond is how many pages of a tenant begin in a second for each processor, and how many
// without a sign-in: a page costs much, and its readers are few.
const pagesPerSecond = 50

// in calls serve with the Handler of the request's tenant in the visit, and answers with its error.
func (h *Handler) in(v *visit, signsIn bool, serve func() error) error {
	if h.tenants == nil {
		return serve()
	}
	own := *h
	own.tenant = h.prefix.TenantOf(v.r, h.options.Tenant)
	v.r.SetPathValue(routing.Tenant, own.tenant)
	if !signsIn && !own.mayKnow(v.r) {
		return &svc.Error{Code: svc.CodeUnauthenticated}
	}
	arrived := v.r
	defer func() { v.r = arrived }()
	err := h.tenants.UseContext(v.r.Context(), own.tenant, func(
		ctx context.Context, service *svc.Service,
	) error {
		own.service = service
		own.options.Logger = h.options.Logger.With("tenant", own.tenant)
		v.h = &own
		v.r = v.r.WithContext(ctx)
		v.answer(serve)
		return nil
	})
	if svc.ErrorCode(err) != svc.CodeNotFound {
		return err
	}
	if signsIn {
		return v.refuseSignIn(notAccepted)
	}
	return &svc.Error{Code: svc.CodeUnauthenticated}
}

// mayKnow reports whether a request has something that could tell who the caller is.
func (h *Handler) mayKnow(r *http.Request) bool {
	if h.options.Principal != nil || h.options.Bearer != nil && h.options.Bearer(r) != "" {
		return true
	}
	_, found := h.session(r)
	return found
}

// mask masks text that looks like an API key, also like an imported key of another system.
func (h *Handler) mask(text string) string {
	if h.service == nil {
		return h.tenants.Mask(text)
	}
	return h.service.Keys.Mask(text)
}
