package svc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/lists"
)

// report is "id update|gone|the problem" of each template, and "name checked the problem" of each source.
func report(r svc.UpdateReport) (lines []string) {
	for _, t := range r.Templates {
		word := "gone"
		if t.Problem != "" {
			word = t.Problem
		} else if t.HasUpdate() {
			word = "update"
		}
		lines = append(lines, t.ID+" "+word)
	}
	for _, s := range r.Sources {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(s.Source.Name, " ", s.Checked, " ", s.Problem)))
	}
	return lines
}

func (h *host) checkUpdates(t *testing.T) svc.UpdateReport {
	return must(h.Templates.CheckUpdates(t.Context(), admin, nil))
}

func (h *host) install(t *testing.T, id, alias string, c svc.Content) {
	h.market.put(acme, id, c)
	must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: id, SourceName: "acme", AliasID: &alias}))
}

func inFile(c svc.Content, id string) svc.CatalogEntry {
	c.Manifest = nil
	return svc.CatalogEntry{ID: id, Content: c, ManifestFile: id + ".json"}
}

// When the same catalogue meets the same installations nothing is compared again, and when either changes it is.
func TestCheckUpdatesRemembers(t *testing.T) {
	is := is.New(t)
	var validated atomic.Int64
	h := newHost(t, func(c *svc.Config) {
		c.Templates.ValidateManifest = func(json.RawMessage) error { validated.Add(1); return nil }
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "a", "a", content("A", "1"))
	offer := func(version, revision string) {
		offering(h, svc.CatalogEntry{ID: "a", Content: content("A", version)})
		h.market.catalog.Revision = revision
	}
	offer("2", "sha256:1")
	compared := func() bool {
		before := validated.Load()
		is.Equal(report(h.checkUpdates(t)), []string{"a update", "acme 1"})
		return validated.Load() > before
	}
	remembered := func() { // once it has heard of the last change
		t.Helper()
		eventually(t, func() bool { return !compared() })
	}
	remembered()
	offer("3", "sha256:2")
	is.True(compared())
	remembered()
	must(h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Name: ptr("edited")}))
	is.True(compared())
	remembered()
	offer("3", "") // a marketplace that does not say
	is.True(compared())
	is.True(compared())
	h.market.put(acme, "a", content("A", "3"))
	for _, digest := range []string{"", "sha256:3"} { // a file without a digest may change at any time
		entry := inFile(content("A", "3"), "a")
		entry.ManifestDigest = digest
		offering(h, entry)
		h.market.catalog.Revision = "with " + digest
		is.True(compared())
		if digest == "" {
			is.True(compared())
		} else {
			remembered()
		}
	}
	offer("2", "sha256:1")
	h.install(t, "a", "again", content("A", "2"))
	is.Equal(report(h.checkUpdates(t)), []string{"a update", "acme 2"})
	is.NoErr(h.Templates.Delete(t.Context(), admin, "a"))
	is.Equal(report(h.checkUpdates(t)), []string{"acme 1"})
}

func TestCheckUpdatesProgress(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	for i := range 9 {
		h.install(t, fmt.Sprint(i), fmt.Sprint("a", i), content("A", "1"))
	}
	offering(h, svc.CatalogEntry{ID: "x", Content: content("X", "1")})
	h.market.maxAge = time.Hour
	var told []int
	must(h.Templates.CheckUpdates(t.Context(), admin, func(done, total int) {
		is.Equal(total, 10)
		told = append(told, done)
	}))
	is.True(slices.IsSorted(told))
	is.Equal(told[len(told)-1], 10)
	is.Equal(h.market.maxAge, time.Duration(0)) // the catalogue as it is now
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.True(errorOf(h.Templates.CheckUpdates(ctx, admin, nil)) != nil)
}

// The copies of the server's templates are not touched by what users do.
func TestPersonalTemplatesLeaveTheTag(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	h.apply(t, personalStaff())
	var tag string
	eventually(t, func() (kept bool) { tag, kept = h.tag(t); return kept })
	must(h.MyTemplates.Install(t.Context(), owner, svc.Install{TemplateID: "x", SourceName: "acme"}))
	is.Equal(must(h.Templates.ETag(t.Context(), admin)), tag)
}

// slowMarket has sources that do not answer by their own time, unless the caller's ends before.
type slowMarket struct {
	*market
	slow bool
}

func (m *slowMarket) Catalog(ctx context.Context, up svc.Upstream, maxAge time.Duration) (svc.Catalog, error) {
	if ctx.Err() == nil && (!m.slow || strings.HasSuffix(up.URL, "quick")) {
		return m.market.Catalog(ctx, up, maxAge)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	<-ctx.Done()
	return svc.Catalog{}, ctx.Err()
}

// A check ends with the Service: nobody may close the store under it.
func TestCheckEndsWithTheService(t *testing.T) {
	m := &slowMarket{market: newMarket()}
	h := newHost(t, func(c *svc.Config) { c.Sources.Marketplace = m })
	url := "https://example.com/a"
	must(h.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: url, Alias: new("a")}))
	m.put(url, "x", content("X", "1"))
	must(h.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "x", SourceName: "a"}))
	m.slow = true
	ended := make(chan error)
	go func() { ended <- errorOf(h.Templates.CheckUpdates(context.Background(), svc.Host, nil)) }()
	is.New(t).NoErr(h.Close())
	wantCode(t, <-ended, svc.CodeUnavailable, "")
	_, _, err := h.Templates.LastCheck(t.Context(), svc.Host)
	wantCode(t, err, svc.CodeNotFound, "")
}

// Many slow sources cost their own answers and not the report: a caller with a deadline gets it before, and no other
// source is always behind them. Only a source that had its own time is failing.
func TestSlowSourcesAndADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, m := is.New(t), &slowMarket{market: newMarket()}
		var failing atomic.Int64 // sources fail concurrently
		h := newHost(t, func(c *svc.Config) {
			c.Sources.Marketplace = m
			c.Events.OnEvent = func(_ context.Context, e svc.Event) {
				if e.Action == event.SourceFailing {
					failing.Add(1)
				}
			}
		})
		for i := range 100 {
			url := fmt.Sprintf("https://example.com/%03d", i)
			if i == 0 {
				url += "quick"
			}
			source := must(h.Sources.Register(t.Context(), svc.Host, svc.NewSource{URL: url}))
			m.put(url, "x", content("X", "1"))
			must(h.Templates.Install(t.Context(), svc.Host, svc.Install{TemplateID: "x", SourceName: source.Name, AliasID: &source.Name}))
		}
		m.slow = true
		slow := func(all []string) int {
			return len(slices.DeleteFunc(all, func(problem string) bool { return !strings.HasSuffix(problem, " did not answer in time") }))
		}
		for _, ask := range []func(ctx context.Context) (problems int, err error){
			func(ctx context.Context) (problems int, err error) {
				report, err := h.Templates.CheckUpdates(ctx, svc.Host, nil)
				return slow(lists.Map(report.Sources, func(s svc.SourceReport) string { return s.Problem })), err
			},
			func(ctx context.Context) (problems int, err error) {
				listings, err := h.Sources.Search(ctx, svc.Host, svc.CatalogFilter{})
				return slow(lists.Map(listings, func(s svc.SourceListing) string { return s.Problem })), err
			},
		} {
			for problems := 100; problems > 99; {
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				problems = must(ask(ctx))
				is.NoErr(ctx.Err()) // there is time for the answer
				is.True(problems >= 99)
				is.Equal(failing.Load(), int64(0))
				cancel()
			}
			began := time.Now()
			problems := must(ask(t.Context()))
			is.Equal(problems, 99)
			is.True(time.Since(began) > 12*time.Minute) // each had its time
			is.Equal(failing.Load(), int64(99))
			failing.Store(0)
			m.slow = false
			must(ask(t.Context())) // they recover
			m.slow = true
		}
	})
}
