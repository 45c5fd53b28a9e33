package svc_test

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// The end of a caller's time is no failure, whatever the marketplace says of it.
func TestCallersWhoLeaveASource(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	h.actions()
	for _, h.market.err = range []error{
		context.DeadlineExceeded, &svc.Error{Code: svc.CodeSourceTimeout, Message: "did not arrive in time"},
	} {
		for _, ask := range []func(context.Context) error{
			func(ctx context.Context) error { return errorOf(h.Templates.CheckUpdate(ctx, admin, "x")) },
			func(ctx context.Context) error {
				return errorOf(h.Templates.Update(ctx, admin, "x", svc.UpdateRequest{}))
			},
			func(ctx context.Context) error {
				return errorOf(h.Sources.Browse(ctx, admin, "acme", svc.CatalogFilter{}))
			},
		} {
			ctx, leave := context.WithCancel(t.Context())
			h.market.during = leave
			is.True(ask(ctx) != nil)
			is.Equal(h.actions(), nil)
		}
	}
}

const elsewhere = "https://elsewhere.example/acme"
