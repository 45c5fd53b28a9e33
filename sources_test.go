package svc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// An update that began before a source was re-bound does not end with what the old one gave.
func TestReboundDuringAnUpdate(t *testing.T) {
	h := withTemplate(t)
	h.market.put(acme, "x", content("Old source's", "2"))
	h.market.during = func() {
		h.market.during = nil
		must(h.store.RebindTemplates(t.Context(), svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"}, elsewhere))
	}
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})), svc.CodeChanged, "")
}

// left is what a template does after its source was removed and registered again.
type left struct {
	h       *host
	address string // of the second registration; "": there is none
}

// second removes owner's source as gone does, and lets the next owner register it at an address.
func (l left) second(t *testing.T, gone func(h *host) error) {
	t.Helper()
	is.New(t).NoErr(gone(l.h))
	l.h.apply(t, personalStaff()) // the id has rights again: those of another person
	if l.address == "" {
		return
	}
	l.h.market.put(l.address, "x", content("Evil", "2"))
	must(l.h.MySources.Register(t.Context(), owner, svc.NewSource{URL: l.address, Alias: ptr("acme")}))
	must(l.h.MySources.Rebind(t.Context(), owner, "acme"))
}

// What an administrator installed for the server from a source of its own belongs to that registration alone: nobody who has the
// administrator's id, or its name of a source, later decides what an update brings. Neither does the same person without the right.
func TestServerTemplatesOutliveTheirPersonalSource(t *testing.T) {
	for name, gone := range map[string]func(h *host) error{
		"its user is deleted": func(h *host) error { return h.Users.Delete(t.Context(), admin, "owner") },
		"it is removed":       func(h *host) error { return h.MySources.Remove(t.Context(), owner, "acme") },
		"it is removed, then its user": func(h *host) error {
			return errors.Join(h.MySources.Remove(t.Context(), owner, "acme"), h.Users.Delete(t.Context(), admin, "owner"))
		},
	} {
		for _, address := range []string{"", acme, elsewhere} {
			t.Run(name+" "+address, func(t *testing.T) {
				is, h := is.New(t), withPersonalStaff(t)
				must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: ptr("acme")}))
				installed := must(h.Templates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal}))
				_, err := h.Templates.CheckUpdates(t.Context(), admin, nil) // keeps what is installed
				is.NoErr(err)
				left{h, address}.second(t, gone)

				wantGone(t, errorOf(h.Templates.CheckUpdate(t.Context(), admin, "x")))
				wantGone(t, errorOf(h.Templates.Diff(t.Context(), admin, "x")))
				for _, in := range []svc.UpdateRequest{{}, {LocalEdits: svc.TakeTheirs}, {LocalEdits: svc.EditsOverwrite}} {
					wantGone(t, errorOf(h.Templates.Update(t.Context(), admin, "x", in)))
				}
				report := must(h.Templates.CheckUpdates(t.Context(), admin, nil))
				is.Equal(report.Checked, 0)
				is.Equal(len(report.Sources), 1) // still shown
				if address == "" {
					is.True(strings.Contains(report.Sources[0].Problem, `"acme"`))
				} else {
					is.True(strings.Contains(report.Templates[0].Problem, `"acme"`))
					is.Equal(report.Templates[0].LatestRevision, (*string)(nil))
				}
				read := must(h.Templates.Read(t.Context(), admin, "x"))
				is.Equal(read.Origin.URL, "")
				installed.Origin.URL = ""
				is.Equal(read, installed) // content, times and attribution
				is.Equal(len(collect(t, h.Templates.History(t.Context(), admin, "x"))), 0)
			})
		}
	}
}

// wantGone checks for the 404 that names the source.
func wantGone(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, svc.CodeNotFound, "")
	if err != nil && !strings.Contains(err.Error(), `"acme"`) {
		t.Errorf("%v does not name the source", err)
	}
}

// A personal source that is removed while the server installs or updates from it binds nothing, also when it is there again by the
// time of the write.
func TestPersonalSourceRemovedMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		for _, installs := range []bool{false, true} {
			is, h := is.New(t), withPersonalStaff(t)
			register := func() { must(h.MySources.Register(t.Context(), owner, svc.NewSource{URL: acme, Alias: ptr("acme")})) }
			register()
			in := svc.Install{TemplateID: "x", SourceName: "acme", SourceScope: svc.ScopePersonal}
			remove := func() {
				h.market.during = nil
				is.NoErr(h.MySources.Remove(t.Context(), owner, "acme"))
				if again {
					register()
				}
			}
			if installs {
				h.market.during = remove
				must(h.Templates.Install(t.Context(), owner, in))
			} else {
				must(h.Templates.Install(t.Context(), owner, in))
				h.market.put(acme, "x", content("X", "2"))
				h.market.during = remove
				wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeChanged, "")
			}
			is.True(h.market.during == nil)
			if !again {
				register()
			}
			h.market.put(acme, "x", content("Evil", "3"))
			wantGone(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})))
			is.Equal(must(h.Templates.Read(t.Context(), admin, "x")).Origin.URL, "")
		}
	}
}
