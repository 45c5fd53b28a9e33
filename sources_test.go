package svc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// The host is told once that a source fails, and once that it answers again, whatever it was asked for.
func TestSourceEvents(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	fails := func(err error) error { h.market.err = err; return err }
	asks := map[string]func(){
		"check":  func() { _, _ = h.Templates.CheckUpdate(t.Context(), admin, "x") },
		"update": func() { _, _ = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}) },
		"all":    func() { _, _ = h.Templates.CheckUpdates(t.Context(), admin, nil) },
		"browse": func() {
			h.market.catalog.FetchedAt = time.Now().Add(time.Hour) // just now
			_, _ = h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{})
		},
	}
	h.actions()
	for _, ask := range asks {
		for _, then := range asks {
			ask()
			is.Equal(len(h.actions()), 0)
			_ = fails(&svc.Error{Code: svc.CodeSourceFailed, Message: "answered 500"})
			ask()
			then()
			is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
			_ = fails(nil)
			then()
			ask()
			is.Equal(h.actions(), []string{"source.recovered source/acme by admin"})
		}
	}
	// The end of a caller's time is no failure, whatever the marketplace says of it.
	for _, err := range []error{
		context.DeadlineExceeded, &svc.Error{Code: svc.CodeSourceTimeout, Message: "did not arrive in time"},
	} {
		_ = fails(err)
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
		h.market.during = nil
	}
	_ = fails(nil)
	// Of other errors some are no failures. A source that waits has neither failed nor recovered: this server has not read
	// the answer. It has a problem, and others go on.
	failing, recovered := []string{"source.failing source/acme by admin"}, []string{"source.recovered source/acme by admin"}
	waits := &svc.Error{Code: svc.CodeUnavailable, Message: "waited too long", Err: fmt.Errorf("busy: %w", svc.ErrSourceWaits)}
	for _, c := range []struct {
		err  error
		told []string
	}{
		{context.Canceled, nil}, {&svc.Error{Code: svc.CodeNotFound, Message: "no such entry"}, nil},
		{&svc.Error{Code: svc.CodeSourceFailed, Message: "entry 3 is bad", Err: fmt.Errorf("no name: %w", svc.ErrBadEntry)}, nil},
		{waits, nil}, {errors.New("down"), failing}, {waits, nil}, {nil, recovered}, {context.DeadlineExceeded, failing}, {nil, recovered},
	} {
		_ = fails(c.err)
		asks["check"]()
		is.Equal(h.actions(), c.told)
	}
	_ = fails(waits)
	is.Equal(must(h.Sources.Search(t.Context(), admin, svc.CatalogFilter{}))[0].Problem, "waited too long")
	// One that is registered anew has not failed yet.
	_ = fails(errors.New("down"))
	asks["check"]()
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.actions()
	asks["check"]()
	is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
}

// A copy says nothing of the source now.
func TestCopyIsNoRecovery(t *testing.T) {
	h := withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	h.market.err = errors.New("down")
	_, _ = h.Templates.CheckUpdate(t.Context(), admin, "x")
	h.actions()
	h.market.err = nil
	h.market.catalog.FetchedAt = time.Now().Add(-time.Second)
	must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))
	is.New(t).Equal(len(h.actions()), 0)
}

const elsewhere = "https://elsewhere.example/acme"
