package svc_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

// Which templates a list has, and in which order, is a rule of stores.
func TestListTemplates(t *testing.T) {
	is, h := is.New(t), newHost(t)
	for _, id := range []string{"b", "a"} {
		create(t, h, id, svc.Content{Category: ptr(id), Tags: []string{"all"}})
	}
	is.Equal(len(collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{Tag: "all"}))), 2)
	is.Equal(collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{Tag: "all", Category: "b"}))[0].ID, "b")
	wantCode(t, lastError(h.Templates.List(t.Context(), admin, svc.TemplateQuery{Tag: "\xff"})), svc.CodeInvalid, "tag")
	for range h.Templates.List(t.Context(), admin, svc.TemplateQuery{}) {
		break // a reader may stop
	}
}

func TestPatchTemplate(t *testing.T) {
	is, h := is.New(t), newHost(t)
	before := create(t, h, "a", svc.Content{Description: ptr("d"), Category: ptr("c"), Tags: []string{"x"}})
	h.actions()

	same := svc.TemplatePatch{
		Name: &before.Name, Description: &svc.TextPatch{Value: ptr("d")}, Tags: &[]string{"x"},
		Integrations: &[]string{}, Manifest: manifest(`{ "version": "1" }`),
	}
	for _, patch := range []svc.TemplatePatch{{}, same} {
		after := must(h.Templates.Patch(t.Context(), admin, "a", patch))
		is.Equal(after, before) // updated_at included
	}
	is.Equal(h.actions(), nil)

	after := must(h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{
		Name: ptr("New"), Description: &svc.TextPatch{}, Category: &svc.TextPatch{Value: ptr("")},
		Tags: &[]string{"y", "y"}, Integrations: &[]string{"i"}, Manifest: manifest(`{"version":"2","n":1.0}`),
	}))
	is.Equal(after.Content, svc.Content{
		Name: "New", Category: ptr(""), Tags: []string{"y", "y"}, Integrations: []string{"i"},
		Manifest: manifest(`{"version":"2","n":1.0}`),
	})
	is.Equal(after.InstalledAt, before.InstalledAt)
	is.True(after.UpdatedAt.After(before.UpdatedAt))
	is.Equal(h.actions(), []string{"template.patched template/a by admin"})
	is.Equal(must(h.Templates.Read(t.Context(), admin, "a")), after)
}

// TestPatchKeepsSpellings: what comes back is the JSON that went in, also where it means the same as before.
func TestPatchKeepsSpellings(t *testing.T) {
	is, h := is.New(t), newHost(t)
	before := create(t, h, "a", svc.Content{Manifest: manifest(`{"version":"1","n":1}`)})
	after := must(h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Manifest: manifest(`{"n":1.0,"version":"1"}`)}))
	is.Equal(string(after.Manifest), `{"n":1.0,"version":"1"}`)
	is.True(after.UpdatedAt.After(before.UpdatedAt))
	is.Equal(revision(t, after.Content), revision(t, before.Content))
}

func TestPatchTemplateRefuses(t *testing.T) {
	is, h := is.New(t), newHost(t)
	before := create(t, h, "a", svc.Content{})
	for field, patch := range map[string]svc.TemplatePatch{
		"/name":             {Name: ptr("")},
		"/description":      {Description: &svc.TextPatch{Value: ptr("\x00")}},
		"/tags/0":           {Tags: &[]string{"\xff"}},
		"/manifest":         {Manifest: manifest(`{`)},
		"/manifest/version": {Manifest: manifest(`{"version":7}`)},
	} {
		wantCode(t, errorOf(h.Templates.Patch(t.Context(), admin, "a", patch)), svc.CodeInvalid, field)
	}
	is.Equal(must(h.Templates.Read(t.Context(), admin, "a")), before)
}

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
			if _, err := h.Templates.Patch(t.Context(), admin, "a", patch); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	is.Equal(must(h.Templates.Read(t.Context(), admin, "a")).Content, svc.Content{
		Name: "New", Description: ptr("new"), Category: ptr("new"), Tags: []string{"new"},
		Integrations: []string{"new"}, Manifest: manifest(`{"version":"new"}`),
	})
}

func TestDeleteTemplate(t *testing.T) {
	is, h := is.New(t), newHost(t)
	create(t, h, "a", svc.Content{Tags: []string{"x"}})
	h.actions()
	is.NoErr(h.Templates.Delete(t.Context(), admin, "a"))
	is.Equal(h.actions(), []string{"template.deleted template/a by admin"})
	wantCode(t, h.Templates.Delete(t.Context(), admin, "a"), svc.CodeNotFound, "")
	create(t, h, "a", svc.Content{})
	is.Equal(len(collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{Tag: "x"}))), 0)
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

// templateDiff installs base, patches it to ours and lets the source have theirs.
func templateDiff(t *testing.T, base, ours, theirs svc.Content) svc.TemplateDiff {
	t.Helper()
	is, h := is.New(t), merging(t, "", base, ours, theirs)
	diff := must(h.Templates.Diff(t.Context(), admin, "x"))
	is.Equal(h.actions(), nil)
	is.Equal(diff.CurrentRevision, revision(t, base))
	is.Equal(diff.LatestRevision, revision(t, theirs))
	return diff
}

// lines writes a diff as "path: base | ours | theirs", with "!" where both sides changed it.
func lines(diff svc.TemplateDiff) string {
	var b strings.Builder
	for _, c := range diff.Changes {
		mark := ""
		if c.Conflict() {
			mark = "!"
		}
		fmt.Fprintf(&b, "%s%s: %s | %s | %s\n", mark, c.Path, c.Base, c.Ours, c.Theirs)
	}
	return b.String()
}

func TestDiffOfTemplate(t *testing.T) {
	base := svc.Content{Name: "X", Description: ptr("d"), Tags: []string{"a", "b"}, Manifest: manifest(`{"version":"1","o":{"k":1,"gone":true,"a/b~c":[1]},"n":1.0}`)}
	for _, c := range []struct {
		name         string
		ours, theirs func(*svc.Content)
		want         string
	}{
		{"nothing", func(*svc.Content) {}, func(*svc.Content) {}, ``},
		{"here", func(c *svc.Content) { c.Name = "Mine" }, func(*svc.Content) {}, "/name: \"X\" | \"Mine\" | \"X\"\n"},
		{"there", func(*svc.Content) {}, func(c *svc.Content) { c.Category = ptr("c") }, "/category: null | null | \"c\"\n"},
		{"both alike", func(c *svc.Content) { c.Description = nil }, func(c *svc.Content) { c.Description = nil }, "/description: \"d\" | null | null\n"},
		{"both", func(c *svc.Content) { c.Tags = []string{"b", "a"} }, func(c *svc.Content) { c.Tags = []string{} },
			`!/tags: ["a","b"] | ["b","a"] | []` + "\n"},
		{"within the manifest",
			func(c *svc.Content) {
				c.Manifest = manifest(`{"version":"1","o":{"k":2,"gone":true,"a/b~c":[1]},"n":1,"ours":{}}`)
			},
			func(c *svc.Content) { c.Manifest = manifest(`{"n":1.0,"version":"2","o":{"k":3,"a/b~c":[1,2]}}`) },
			"/manifest/o/a~1b~0c: [1] | [1] | [1,2]\n/manifest/o/gone: true | true | \n!/manifest/o/k: 1 | 2 | 3\n" +
				"/manifest/ours:  | {} | \n/manifest/version: \"1\" | \"1\" | \"2\"\n"},
		{"an object and none",
			func(c *svc.Content) { c.Manifest = manifest(`{"version":"1","o":[],"n":1}`) },
			func(c *svc.Content) { c.Manifest = manifest(`{"version":"1","o":{"k":1},"n":1}`) },
			`!/manifest/o: {"a/b~c":[1],"gone":true,"k":1} | [] | {"k":1}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := base, base
			c.ours(&ours)
			c.theirs(&theirs)
			if have := lines(templateDiff(t, base, ours, theirs)); have != c.want {
				t.Errorf("have\n%swant\n%s", have, c.want)
			}
		})
	}
}

func TestDiffOfTemplateRefuses(t *testing.T) {
	h := withTemplate(t)
	create(t, h, "made", svc.Content{})
	wantCode(t, errorOf(h.Templates.Diff(t.Context(), admin, "made")), svc.CodeInvalid, "template_id")
	is.New(t).NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	wantCode(t, errorOf(h.Templates.Diff(t.Context(), admin, "x")), svc.CodeNotFound, "")
}

func (k keeper) etag(t *testing.T) string {
	t.Helper()
	etag, _ := k.tag(t)
	return etag
}

// tag returns the entity tag of the list of templates, if the list is in memory.
func (h *host) tag(t *testing.T) (tag string, kept bool) {
	t.Helper()
	tag = must(h.Templates.ETag(context.WithValue(t.Context(), asked{}, true), admin))
	return tag, tag != ""
}

// A list in memory has the tag of its templates, in each process, and is read by that tag or not at all.
func TestETagOfTheList(t *testing.T) {
	is, k := is.New(t), newKeeper(t, 1<<20, func(c *svc.Config) { c.Now = func() time.Time { return time.Unix(1, 0) } })
	other := newHost(t, func(c *svc.Config) { c.Store, c.Sources.Marketplace = k.store.Store, k.market })
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

func history(t *testing.T, h *host, id string) []svc.TemplateVersion {
	t.Helper()
	return collect(t, h.Templates.History(t.Context(), admin, id))
}

// What a patch, an update by force and a rollback replace is in the history, and what writes nothing adds nothing to it.
func TestHistory(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	installed := must(h.Templates.Read(t.Context(), admin, "x"))
	is.Equal(installed.Version, int64(1))
	is.Equal(len(history(t, h, "x")), 0)
	patched := must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")}))
	is.Equal(patched.Version, int64(2))
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr("Mine")}))
	h.market.put(acme, "x", content("X", "2"))
	updated := must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}))
	again, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}) // written again, and the same
	is.NoErr(err)
	is.Equal(again.Template.Version, int64(3))

	versions := history(t, h, "x")
	is.Equal(versions, []svc.TemplateVersion{
		{Number: 2, Content: patched.Content, SourceRevision: installed.Origin.Revision, UpdatedAt: patched.UpdatedAt},
		{Number: 1, Content: installed.Content, SourceRevision: installed.Origin.Revision, UpdatedAt: installed.UpdatedAt},
	})
	h.actions()

	back := must(h.Templates.Rollback(t.Context(), admin, "x", 2))
	is.Equal(back.Content, patched.Content)
	origin := *updated.Template.Origin
	origin.Edited = true
	is.Equal(*back.Origin, origin) // it is an edit
	is.True(back.UpdatedAt.After(updated.Template.UpdatedAt))
	is.Equal(h.actions(), []string{"template.rolled_back template/x by admin", "template.diverged template/x by admin"})
	is.Equal(must(h.Templates.Read(t.Context(), admin, "x")), back)
	is.Equal(history(t, h, "x")[0].Content, updated.Template.Content)
	_, err = h.Templates.Rollback(t.Context(), admin, "x", 3) // and back again
	is.NoErr(err)
	h.actions()
	is.Equal(must(h.Templates.Rollback(t.Context(), admin, "x", 3)).Version, int64(5))
	is.Equal(h.actions(), nil)

	is.True(!must(h.Templates.CheckUpdate(t.Context(), admin, "x")).HasUpdate)
	is.NoErr(h.Templates.Delete(t.Context(), admin, "x"))
	create(t, h, "x", svc.Content{})
	is.Equal(len(history(t, h, "x")), 0)
}

func TestHistoryIsBounded(t *testing.T) {
	is, h := is.New(t), newHost(t)
	create(t, h, "x", svc.Content{})
	for i := range limits.TemplateVersions + 3 {
		must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Name: ptr(fmt.Sprint("name ", i))}))
	}
	versions := history(t, h, "x")
	is.Equal(len(versions), limits.TemplateVersions)
	is.Equal(versions[0].Number, int64(limits.TemplateVersions+3))
	wantCode(t, errorOf(h.Templates.Rollback(t.Context(), admin, "x", 3)), svc.CodeNotFound, "")
}

func TestHistoryRefuses(t *testing.T) {
	h := withTemplate(t)
	for number, code := range map[int64]svc.Code{0: svc.CodeInvalid, -1: svc.CodeInvalid, math.MaxInt64: svc.CodeInvalid, 1: svc.CodeNotFound, 99: svc.CodeNotFound} {
		_, err := h.Templates.Rollback(t.Context(), admin, "x", number)
		if svc.ErrorCode(err) != code {
			t.Errorf("version %d: %v", number, err)
		}
	}
}

func TestCheckUpdate(t *testing.T) {
	is, h := is.New(t), withTemplate(t)
	installed := must(h.Templates.Read(t.Context(), admin, "x"))
	check := func() svc.UpdateCheck {
		t.Helper()
		c := must(h.Templates.CheckUpdate(t.Context(), admin, "x"))
		is.Equal(*c.CurrentRevision, installed.Origin.Revision)
		is.Equal(*c.Source, installed.Origin.Source)
		return c
	}
	c := check()
	is.Equal(c.HasUpdate, false)
	is.Equal(c.LatestRevision, c.CurrentRevision)

	h.market.put(acme, "x", content("X", "2"))
	c = check()
	is.Equal(c.HasUpdate, true)
	is.Equal(*c.LatestRevision, revision(t, content("X", "2")))

	h.market.remove(acme, "x")
	c = check()
	is.Equal(c.HasUpdate, false)
	is.Equal(c.LatestRevision, nil)
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})), svc.CodeNotFound, "")

	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	wantCode(t, errorOf(h.Templates.CheckUpdate(t.Context(), admin, "x")), svc.CodeNotFound, "")
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})), svc.CodeNotFound, "")
	is.Equal(must(h.Templates.Read(t.Context(), admin, "x")).Origin.Source.Name, "acme")

	create(t, h, "hand", svc.Content{})
	is.Equal(must(h.Templates.CheckUpdate(t.Context(), admin, "hand")), svc.UpdateCheck{})
	wantCode(t, errorOf(h.Templates.Update(t.Context(), admin, "hand", svc.UpdateRequest{LocalEdits: svc.TakeTheirs})), svc.CodeInvalid, "template_id")
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

// Re-binding changes nothing that an ETag follows from.
func TestKeptTemplatesAgreeWithTheirAddress(t *testing.T) {
	k := newKeeper(t, 1<<20)
	k.register(t)
	k.plain.install(t, "x", "x", content("X", "1"))
	k.market.put(elsewhere, "x", content("X", "1"))
	k.warm(t)
	k.store.plant(func() { k.store.deaf = true })
	k.warm(t)
	is.New(t).NoErr(k.plain.Sources.Remove(t.Context(), admin, "acme"))
	must(k.plain.Sources.Register(t.Context(), admin, svc.NewSource{URL: elsewhere, Alias: ptr("acme")}))
	must(k.plain.Sources.Rebind(t.Context(), admin, "acme"))
	must(k.Templates.CheckUpdate(k.ctx(t), admin, "x"))
	k.same(t)
}
