package svc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/intercept"
	"github.com/extsvc/svc/limits"
)

func TestPatchesAtOnceAllHold(t *testing.T) {
	is, h := is.New(t), newHost(t)
	create(t, h, "a", svc.Content{})
	patches := []svc.TemplatePatch{
		{Name: ptr("New")}, {Description: &svc.TextPatch{Value: ptr("new")}}, {Category: &svc.TextPatch{Value: ptr("new")}},
		{Tags: &[]string{"new"}}, {Integrations: &[]string{"new"}}, {Manifest: manifest(`{"version":"new"}`)},
	}
	var wg sync.WaitGroup
	for _, patch := range patches {
		wg.Go(func() {
			expect.Equal(t, "a patch", errorOf(h.Templates.Patch(t.Context(), admin, "a", patch)), nil)
		})
	}
	wg.Wait()
	is.Equal(must(h.Templates.Read(t.Context(), admin, "a")).Content, svc.Content{
		Name: "New", Description: ptr("new"), Category: ptr("new"), Tags: []string{"new"},
		Integrations: []string{"new"}, Manifest: manifest(`{"version":"new"}`),
	})
}

// Which templates a part has is a rule of stores, and of what is kept of them in memory.
func TestPartsOfAList(t *testing.T) {
	for cached, memory := range map[int]bool{-1: false, 0: true} {
		h := newHost(t, func(c *svc.Config) { c.Memory.Templates = cached })
		for _, id := range []string{"d", "a", "c", "b"} {
			create(t, h, id, svc.Content{Name: id})
		}
		eventually(t, func() bool {
			query := svc.TemplateQuery{AfterName: "a", AfterID: "a", Skip: 1, Limit: 1}
			is.New(t).Equal(collect(t, h.Templates.List(t.Context(), admin, query))[0].ID, "c")
			_, kept := h.tag(t)
			return kept == memory
		})
		for field, query := range map[string]svc.TemplateQuery{"skip": {Skip: -1}, "limit": {Limit: -1}} {
			wantCode(t, lastError(h.Templates.List(t.Context(), admin, query)), svc.CodeInvalid, field)
		}
		wantCode(t, lastError(h.Templates.List(t.Context(), alice, svc.TemplateQuery{Skip: 1, Limit: 1})), svc.CodeForbidden, "")
	}
}

func (k keeper) etag(t *testing.T) string {
	etag, _ := k.tag(t)
	return etag
}

func (h *host) tag(t *testing.T) (tag string, kept bool) {
	tag = must(h.Templates.ETag(context.WithValue(t.Context(), asked{}, true), admin))
	return tag, tag != ""
}

// A list in memory has the tag of its templates, in each process, and is read by that tag or not at all.
func TestETagOfTheList(t *testing.T) {
	is, k := is.New(t), newKeeper(t, 1<<20, func(c *svc.Config) { c.Now = func() time.Time { return time.Unix(1, 0) } })
	other := newHost(t, func(c *svc.Config) { c.Store, c.Sources.Marketplace = k.store.FullStore, k.market })
	seen := map[string]bool{"": true}
	next := func() {
		t.Helper()
		k.warm(t)
		etag := k.etag(t)
		eventually(t, func() bool {
			same, _ := other.tag(t)
			return same == etag
		})
		if seen[etag] {
			t.Fatalf("the tag %s was there before", etag)
		}
		is.Equal(etag, k.etag(t))
		for old := range seen {
			list := k.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, "x", old)
			wantCode(t, lastError(list), svc.CodePrecondition, "")
		}
		for _, ifMatch := range [][]string{{etag}, {"x", etag}, {svc.AnyETag}} {
			list := collect(t, k.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, ifMatch...))
			is.Equal(list, k.list(t, k.plain, svc.TemplateQuery{}))
		}
		seen[etag] = true
	}
	next()
	empty := k.etag(t)
	create(t, k.host, "a", svc.Content{})
	is.True(!seen[k.etag(t)]) // at once
	next()
	must(k.Templates.Patch(k.ctx(t), admin, "a", svc.TemplatePatch{Name: ptr("Other")}))
	next()
	before := k.etag(t)
	k.patchPlain(t, "a")
	eventually(t, func() bool { return k.etag(t) != before })
	next()
	before = k.etag(t)
	is.NoErr(k.Templates.Delete(k.ctx(t), admin, "a"))
	is.True(k.etag(t) != before)
	is.Equal(k.etag(t), empty)
	for _, content := range []svc.Content{
		{Tags: []string{"x"}}, {Integrations: []string{"x"}}, {Description: ptr("x")}, {Category: ptr("x")}, {Description: ptr("")},
	} {
		create(t, k.host, "a", content) // in the same microsecond
		next()
		is.NoErr(k.Templates.Delete(k.ctx(t), admin, "a"))
	}

	wantCode(t, errorOf(k.Templates.ETag(k.ctx(t), user("alice"))), svc.CodeForbidden, "")
	is.Equal(must(k.plain.Templates.ETag(k.ctx(t), admin)), "")
	stored := k.plain.Templates.List(k.ctx(t), admin, svc.TemplateQuery{}, k.etag(t))
	wantCode(t, lastError(stored), svc.CodePrecondition, "")
}

func TestHistoryIsBounded(t *testing.T) {
	is, h := is.New(t), newHost(t)
	create(t, h, "x", svc.Content{})
	for i := range limits.TemplateVersions + 3 {
		must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr(fmt.Sprint("name ", i))}))
	}
	versions := collect(t, h.Templates.History(t.Context(), admin, "x"))
	is.Equal(len(versions), limits.TemplateVersions)
	is.Equal(versions[0].Number, int64(limits.TemplateVersions+3))
	wantCode(t, errorOf(h.Templates.Rollback(t.Context(), admin, "x", 3)), svc.CodeNotFound, "")
}

// A list from memory takes no memory for its rows.
func TestKeptTemplatesAreNotCopiedAgain(t *testing.T) {
	k := newKeeper(t, 1<<20)
	allocs := func() float64 {
		k.warm(t)
		return testing.AllocsPerRun(100, func() {
			for _, err := range k.Templates.List(t.Context(), svc.Host, svc.TemplateQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	create(t, k.plain, "a", svc.Content{})
	few := allocs()
	for i := range 300 {
		create(t, k.host, fmt.Sprint("t", i), svc.Content{Tags: []string{"a", "b"}, Category: ptr("c")})
	}
	if many := allocs(); many > few || many > 10 {
		t.Errorf("a list of one allocates %v times, one of 301 %v times", few, many)
	}
}

// One change, of whichever process, costs a read of one template, and the bases of edited templates are bounded.
func TestChangedTemplatesAreReadAlone(t *testing.T) {
	is, k := is.New(t), newKeeper(t, 1<<20)
	k.register(t)
	k.fill(t, rand.New(rand.NewPCG(2, 2)), 200)
	k.warm(t)
	reads := func(do func()) int64 {
		before := k.store.templates.Load()
		do()
		return k.store.templates.Load() - before
	}
	list := func() { k.sameList(t, svc.TemplateQuery{}) }
	is.Equal(reads(func() {
		must(k.Templates.Patch(k.ctx(t), admin, "t7", svc.TemplatePatch{Name: ptr("Other")}))
		list()
		list()
	}), int64(1))
	is.Equal(reads(func() {
		k.patchPlain(t, "t8")
		eventually(t, func() bool {
			rows := k.list(t, k.host, svc.TemplateQuery{})
			return slices.ContainsFunc(rows, func(row svc.Template) bool { return row.ID == "t8" && strings.HasPrefix(row.Name, "Patched") })
		})
		list()
	}), int64(1))
	is.Equal(reads(func() {
		is.NoErr(k.Templates.Delete(k.ctx(t), admin, "t9"))
		list()
	}), int64(1))
}

// What was read of a template goes into no other one that has its id by then.
func TestRollbackIsOfTheTemplateThatWasRead(t *testing.T) {
	h := newHost(t)
	create(t, h, "a", content("Old", "1"))
	must(h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Name: ptr("Older")}))
	other := newHost(t, func(c *svc.Config) {
		c.Store = around(h.store, func(call intercept.Call) error {
			err := call.Do()
			if call.Method == "TemplateVersions" {
				is.New(t).NoErr(h.Templates.Delete(t.Context(), admin, "a"))
				create(t, h, "a", content("New", "1"))
			}
			return err
		})
	})
	wantCode(t, errorOf(other.Templates.Rollback(t.Context(), admin, "a", 1)), svc.CodeChanged, "")
	is.New(t).Equal(must(h.Templates.Read(t.Context(), admin, "a")).Name, "New")
}

// Re-binding changes nothing that an ETag follows from.
func TestKeptTemplatesAgreeWithTheirAddress(t *testing.T) {
	k := newKeeper(t, 1<<20)
	k.register(t)
	k.plain.install(t, "x", "x", content("X", "1"))
	k.market.put(elsewhere, "x", content("X", "1"))
	k.warm(t)
	k.store.deaf.Store(true)
	k.warm(t)
	is.New(t).NoErr(k.plain.Sources.Remove(t.Context(), admin, "acme"))
	must(k.plain.Sources.Register(t.Context(), admin, svc.NewSource{URL: elsewhere, Alias: ptr("acme")}))
	must(k.plain.Sources.Rebind(t.Context(), admin, "acme"))
	must(k.Templates.CheckUpdate(k.ctx(t), admin, "x"))
	k.same(t)
}
