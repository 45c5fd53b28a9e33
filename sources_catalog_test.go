package svc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func offering(h *host, entries ...svc.CatalogEntry) {
	h.market.catalog = svc.Catalog{FetchedAt: time.Date(2026, 11, 21, 12, 0, 0, 1999, time.FixedZone("elsewhere", 3600))}
	for i, entry := range entries {
		entry.Index = i
		h.market.catalog.Entries = append(h.market.catalog.Entries, entry)
	}
}

// behind is "id as [ids] behind", each.
func behind(list svc.SourceTemplates) (all []string) {
	for _, t := range list.Templates {
		word := "unknown"
		if t.Behind != nil {
			word = fmt.Sprint(*t.Behind)
		}
		all = append(all, fmt.Sprint(t.ID, " ", t.InstalledAs, " ", word))
	}
	return all
}

func TestRenamed(t *testing.T) {
	c := svc.Catalog{Entries: []svc.CatalogEntry{{ID: "z"}}, Renames: map[string]string{"x": "y", "y": "z"}}
	is.New(t).Equal([]string{c.Renamed("x"), c.Renamed("z")}, []string{"z", ""})
}

func TestSourceTemplatesAmongMany(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	for i := range 300 {
		create(t, h, fmt.Sprintf("made-%03d", i), svc.Content{Name: fmt.Sprintf("A %03d", i)})
	}
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	is.Equal(behind(must(h.Sources.Browse(t.Context(), admin, "acme", svc.CatalogFilter{}))), []string{"x [x] false"})
	source, up := collect(t, h.Sources.List(t.Context(), admin))[0], h.market.asked[len(h.market.asked)-1]
	is.True(up.Memory != nil && h.market.maxAge == time.Minute)
	up.Memory = nil
	is.Equal(up, svc.Upstream{Source: source.SourceKey, URL: acme, Registered: source.CreatedAt})
}

// A search lists no more than fits into one answer. What does not fit has a problem, and is listed alone.
func TestSearchOfManyLargeSources(t *testing.T) {
	is, h := is.New(t), newHost(t)
	large := content("X", "1")
	large.Manifest = manifest(`{"version":"1","a":"` + strings.Repeat("x", 100_000) + `"}`)
	var offered []svc.CatalogEntry
	for i := range 100 {
		offered = append(offered, svc.CatalogEntry{ID: fmt.Sprint("x", i), Content: large})
		offered[i].Content.Manifest = slices.Clone(large.Manifest)
	}
	offering(h, offered...)
	for i := range 5 { // of 10 MB
		must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme, Alias: new(fmt.Sprint("s", i))}))
	}
	list := must(h.Sources.Search(t.Context(), admin, svc.CatalogFilter{}))
	whole := 0
	for _, source := range list {
		if source.Problem == "" {
			is.Equal(len(source.Templates), 100)
			whole++
			continue
		}
		is.True(strings.Contains(source.Problem, source.Source.Name))
		is.Equal(len(source.Templates), 0)
		is.Equal(len(must(h.Sources.Browse(t.Context(), admin, source.Source.Name, svc.CatalogFilter{})).Templates), 100)
	}
	is.True(whole > 0 && whole < len(list))
	few := must(h.Sources.Search(t.Context(), admin, svc.CatalogFilter{Text: "y"}))
	for _, source := range few {
		is.Equal(source.Problem, "")
	}
}

// With a source its answers are kept, and the greatest serial of them: for other processes, until it is registered anew.
func TestSourcesRemember(t *testing.T) {
	is, ctx, h := is.New(t), t.Context(), withTemplate(t)
	asks := func(h *host) svc.Upstream {
		_, _ = h.Templates.CheckUpdate(ctx, admin, "x") // this market may offer nothing
		return h.market.asked[len(h.market.asked)-1]
	}
	first := asks(h)
	first.Memory.KeepFile(ctx, "f.json", []byte("text"))
	is.Equal(must(first.Memory.AcceptSerial(ctx, 5)), int64(5))
	committed := must(h.store.Changes(ctx, 0)).Generation
	is.Equal(must(first.Memory.AcceptSerial(ctx, 5)), int64(5))
	is.Equal(must(h.store.Changes(ctx, 0)).Generation, committed) // nothing has changed
	other := newHost(t, func(c *svc.Config) { c.Store = h.store })
	second := asks(other)
	is.Equal(string(second.Memory.File(ctx, "f.json")), "text")
	is.Equal(second.Serial, int64(5))
	for length, kept := range map[int]string{1024: "text", 1025: ""} { // bytes
		first.Memory.KeepFile(ctx, strings.Repeat("p", length), []byte("text"))
		is.Equal(string(second.Memory.File(ctx, strings.Repeat("p", length))), kept)
	}
	is.Equal(must(second.Memory.AcceptSerial(ctx, 4)), int64(5))

	is.NoErr(h.Sources.Remove(ctx, admin, "acme"))
	must(h.Sources.Register(ctx, admin, svc.NewSource{URL: acme, Alias: ptr("acme")}))
	again := asks(other)
	is.Equal(again.Memory.File(ctx, "f.json"), nil)
	is.Equal(again.Serial, int64(0))
	_, err := second.Memory.AcceptSerial(ctx, 1<<53) // by a request that began before the removal
	wantCode(t, err, svc.CodeNotFound, "")
	is.Equal(asks(other).Serial, int64(0))
}

// The end of a caller's time is no failure, whatever the marketplace says of it.
func TestCallersWhoLeaveASource(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	h.actions()
	late := &svc.Error{Code: svc.CodeSourceTimeout, Message: "did not arrive in time"}
	for err, code := range map[error]svc.Code{
		context.Canceled: svc.CodeUnavailable, context.DeadlineExceeded: svc.CodeSourceTimeout, late: svc.CodeSourceTimeout,
	} {
		h.market.err = err
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
			is.Equal(svc.ErrorCode(ask(ctx)), code)
			is.Equal(h.actions(), nil)
		}
	}
}
