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
	is := is.New(t)
	h, _ := withTemplate(t)
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
	// No failures of the source.
	for _, err := range []error{
		context.Canceled, &svc.Error{Code: svc.CodeNotFound, Message: "no such entry"},
		&svc.Error{Code: svc.CodeSourceFailed, Message: "entry 3 is bad", Err: fmt.Errorf("no name: %w", svc.ErrBadEntry)},
	} {
		_ = fails(err)
		asks["check"]()
		is.Equal(len(h.actions()), 0)
	}
	// Others are.
	for _, err := range []error{context.DeadlineExceeded, errors.New("unknown")} {
		_ = fails(err)
		asks["check"]()
		is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
		_ = fails(nil)
		asks["check"]()
		h.actions()
	}
	// One that is registered anew has not failed yet.
	_ = fails(errors.New("down"))
	asks["check"]()
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})
	is.NoErr(err)
	h.actions()
	asks["check"]()
	is.Equal(h.actions(), []string{"source.failing source/acme by admin"})
}

// A copy says nothing of the source now.
func TestCopyIsNoRecovery(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	h.market.err = errors.New("down")
	_, _ = h.Templates.CheckUpdate(t.Context(), admin, "x")
	h.actions()
	h.market.err = nil
	h.market.catalog.FetchedAt = time.Now().Add(-time.Second)
	_, err := h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{})
	is.NoErr(err)
	is.Equal(len(h.actions()), 0)
}

// A template diverges when an edit makes it something else than its source gave: that once, not with each edit.
func TestDiverged(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	patch := func(id, name string) []string {
		_, err := h.Templates.Patch(t.Context(), admin, id, svc.TemplatePatch{Name: &name})
		is.NoErr(err)
		return h.actions()
	}
	const patched, diverged = "template.patched template/x by admin", "template.diverged template/x by admin"
	is.Equal(patch("x", "edited"), []string{patched, diverged})
	is.Equal(patch("x", "again"), []string{patched})
	is.Equal(patch("x", "X"), []string{patched}) // as it was
	is.Equal(patch("x", "edited"), []string{patched, diverged})
	is.Equal(len(patch("x", "edited")), 0)
	_, err := h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "hand", Content: content("Hand", "1")})
	is.NoErr(err)
	h.actions()
	is.Equal(patch("hand", "edited"), []string{"template.patched template/hand by admin"})
}
