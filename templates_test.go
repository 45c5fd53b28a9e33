package svc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

func create(t *testing.T, h *host, id string, content svc.Content) svc.Template {
	t.Helper()
	if content.Manifest == nil {
		content.Manifest = manifest(`{"version":"1"}`)
	}
	if content.Name == "" {
		content.Name = "The " + id
	}
	return must(h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: id, Content: content}))
}

func TestCreateTemplate(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	made := create(t, h, "notes", svc.Content{
		Name: "Notes", Description: ptr(""), Category: ptr("work"), Tags: []string{"b", "a", "b"},
		Manifest: manifest(` { "version" : "1", "n" : 1.0, "big" : 12345678901234567890 } `),
	})
	is.Equal(made.TemplateKey, svc.TemplateKey{Scope: svc.ScopeServer, ID: "notes"})
	is.Equal(string(made.Manifest), `{"version":"1","n":1.0,"big":12345678901234567890}`)
	is.Equal(made.Tags, []string{"b", "a", "b"})
	is.Equal(made.Integrations, []string{})
	is.Equal(made.InstalledAt, made.UpdatedAt)
	is.Equal(made.InstalledAt.Nanosecond(), 0) // 999 ns are cut to microseconds
	is.Equal(made.InstalledAt.Location().String(), "UTC")

	is.Equal(must(h.Templates.Read(t.Context(), admin, "notes")), made)
	is.Equal(h.actions(), []string{"template.created template/notes by admin"})

	_, err := h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "notes", Content: made.Content})
	wantCode(t, err, svc.CodeExists, "/id")
	wantCode(t, errorOf(h.Templates.Read(t.Context(), admin, "nothing")), svc.CodeNotFound, "")
	is.Equal(h.actions(), nil)
}

func TestCreateTemplateRefuses(t *testing.T) {
	long := strings.Repeat("é", limits.DescriptionLength)
	for _, c := range []struct {
		field string
		id    string
		edit  func(*svc.Content)
	}{
		{"/id", "", func(*svc.Content) {}},
		{"/id", ".", func(*svc.Content) {}},
		{"/id", "..", func(*svc.Content) {}},
		{"/id", "a/b", func(*svc.Content) {}},
		{"/id", `a\b`, func(*svc.Content) {}},
		{"/id", "a\x00", func(*svc.Content) {}},
		{"/id", "a\n", func(*svc.Content) {}},
		{"/id", "a\u202e", func(*svc.Content) {}},
		{"/id", "a\u200b", func(*svc.Content) {}},
		{"/id", "\xff", func(*svc.Content) {}},
		{"/id", strings.Repeat("é", 129), func(*svc.Content) {}},
		{"/name", "a", func(c *svc.Content) { c.Name = "" }},
		{"/name", "a", func(c *svc.Content) { c.Name = "a\x00b" }},
		{"/description", "a", func(c *svc.Content) { c.Description = ptr(long + "é") }},
		{"/description", "a", func(c *svc.Content) { c.Description = ptr("\xff") }},
		{"/category", "a", func(c *svc.Content) { c.Category = ptr(long) }},
		{"/tags", "a", func(c *svc.Content) { c.Tags = make([]string, limits.Labels+1) }},
		{"/tags/1", "a", func(c *svc.Content) { c.Tags = []string{"a", long} }},
		{"/integrations/0", "a", func(c *svc.Content) { c.Integrations = []string{long} }},
		{"/manifest", "a", func(c *svc.Content) { c.Manifest = nil }},
		{"/manifest", "a", func(c *svc.Content) { c.Manifest = manifest(`null`) }},
		{"/manifest", "a", func(c *svc.Content) { c.Manifest = manifest(`["version"]`) }},
		{"/manifest", "a", func(c *svc.Content) { c.Manifest = manifest(`{"version":"1"`) }},
		{"/manifest/a", "a", func(c *svc.Content) { c.Manifest = manifest(`{"version":"1","a":1,"a":2}`) }},
		{"/manifest", "a", func(c *svc.Content) {
			c.Manifest = manifest(`{"version":"1","a":"` + strings.Repeat("a", limits.Manifest) + `"}`)
		}},
		{"/manifest/version", "a", func(c *svc.Content) { c.Manifest = manifest(`{}`) }},
		{"/manifest/version", "a", func(c *svc.Content) { c.Manifest = manifest(`{"version":null}`) }},
		{"/manifest/version", "a", func(c *svc.Content) { c.Manifest = manifest(`{"version":1}`) }},
		{"/manifest/version", "a", func(c *svc.Content) { c.Manifest = manifest(`{"version":""}`) }},
	} {
		h := newHost(t)
		content := svc.Content{Name: "n", Description: &long, Manifest: manifest(`{"version":"1"}`)}
		c.edit(&content)
		_, err := h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: c.id, Content: content})
		wantCode(t, err, svc.CodeInvalid, c.field)
		if all := collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{})); len(all) > 0 {
			t.Errorf("%s: something was written", c.field)
		}
	}
}

func TestOddIDsAreKept(t *testing.T) {
	h := newHost(t)
	ids := []string{"a:b@c", "A", "a", "é", "e\u0301", "%2F", " ", "'\"", "...", "🧠", strings.Repeat("é", 128)}
	for _, id := range ids {
		create(t, h, id, svc.Content{})
	}
	for _, id := range ids {
		is.New(t).Equal(must(h.Templates.Read(t.Context(), admin, id)).ID, id)
	}
}

func TestListTemplates(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for i, id := range []string{"d", "b", "c", "a"} {
		create(t, h, id, svc.Content{Name: []string{"Z", "Y", "Y", "é"}[i], Category: ptr(id), Tags: []string{"all", id}})
	}
	ids := func(f svc.TemplateQuery) (ids []string) {
		for _, template := range collect(t, h.Templates.List(t.Context(), admin, f)) {
			ids = append(ids, template.ID)
		}
		return ids
	}
	is.Equal(ids(svc.TemplateQuery{}), []string{"b", "c", "d", "a"})
	is.Equal(ids(svc.TemplateQuery{Tag: "all", Category: "c"}), []string{"c"})
	is.Equal(ids(svc.TemplateQuery{Tag: "b", Category: "c"}), nil)
	is.Equal(ids(svc.TemplateQuery{Tag: "ALL"}), nil)

	wantCode(t, lastError(h.Templates.List(t.Context(), admin, svc.TemplateQuery{Tag: "\xff"})), svc.CodeInvalid, "tag")
	for range h.Templates.List(t.Context(), admin, svc.TemplateQuery{}) {
		break // a reader may stop
	}
}

func TestLongListComesInChunks(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for i := range 173 {
		create(t, h, sprintf("%03d", i), svc.Content{Name: "same"})
	}
	all := collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{}))
	is.Equal(len(all), 173)
	for i, template := range all {
		is.Equal(template.ID, sprintf("%03d", i))
	}
}

func TestPatchTemplate(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
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

	after, err := h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{
		Name: ptr("New"), Description: &svc.TextPatch{}, Category: &svc.TextPatch{Value: ptr("")},
		Tags: &[]string{"y", "y"}, Integrations: &[]string{"i"}, Manifest: manifest(`{"version":"2","n":1.0}`),
	})
	is.NoErr(err)
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
	is := is.New(t)
	h := newHost(t)
	before := create(t, h, "a", svc.Content{Manifest: manifest(`{"version":"1","n":1}`)})
	after, err := h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Manifest: manifest(`{"n":1.0,"version":"1"}`)})
	is.NoErr(err)
	is.Equal(string(after.Manifest), `{"n":1.0,"version":"1"}`)
	is.True(after.UpdatedAt.After(before.UpdatedAt))
	is.Equal(revision(t, after.Content), revision(t, before.Content))
}

func TestPatchTemplateRefuses(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
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
	wantCode(t, errorOf(h.Templates.Patch(t.Context(), admin, "b", svc.TemplatePatch{})), svc.CodeNotFound, "")
	_, err := h.Templates.Patch(t.Context(), admin, "..", svc.TemplatePatch{})
	wantCode(t, err, svc.CodeInvalid, "template_id")
	is.Equal(must(h.Templates.Read(t.Context(), admin, "a")), before)
}

func TestPatchesAtOnceAllHold(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
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
	read := must(h.Templates.Read(t.Context(), admin, "a"))
	is.Equal(read.Content, svc.Content{
		Name: "New", Description: ptr("new"), Category: ptr("new"), Tags: []string{"new"},
		Integrations: []string{"new"}, Manifest: manifest(`{"version":"new"}`),
	})
}

func TestDeleteTemplate(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	create(t, h, "a", svc.Content{Tags: []string{"x"}})
	h.actions()
	is.NoErr(h.Templates.Delete(t.Context(), admin, "a"))
	is.Equal(h.actions(), []string{"template.deleted template/a by admin"})
	wantCode(t, h.Templates.Delete(t.Context(), admin, "a"), svc.CodeNotFound, "")
	wantCode(t, h.Templates.Delete(t.Context(), admin, "."), svc.CodeInvalid, "template_id")
	create(t, h, "a", svc.Content{})
	is.Equal(len(collect(t, h.Templates.List(t.Context(), admin, svc.TemplateQuery{Tag: "x"}))), 0)
}

func TestValidateManifest(t *testing.T) {
	h := newHost(t, func(c *svc.Config) {
		c.Templates.ValidateManifest = func(m json.RawMessage) error {
			if !strings.Contains(string(m), "bank") {
				return errors.New("must have a bank")
			}
			return nil
		}
	})
	content := svc.Content{Name: "n", Manifest: manifest(`{"version":"1"}`)}
	_, err := h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "a", Content: content})
	wantCode(t, err, svc.CodeInvalid, "/manifest")
	create(t, h, "a", svc.Content{Manifest: manifest(`{"version":"1","bank":{}}`)})
	_, err = h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Name: ptr("other")})
	if err != nil {
		t.Error("a patch that leaves the manifest alone is refused:", err)
	}
	_, err = h.Templates.Patch(t.Context(), admin, "a", svc.TemplatePatch{Manifest: content.Manifest})
	wantCode(t, err, svc.CodeInvalid, "/manifest")
}

// Errors of the host's check that have a pointer are shown at it, all of them, wherever the manifest came from.
func TestValidateManifestWithPointers(t *testing.T) {
	is := is.New(t)
	refuse := false
	h := newHost(t, func(c *svc.Config) {
		c.Templates.ValidateManifest = func(json.RawMessage) error {
			if !refuse {
				return nil
			}
			first := &svc.Error{Field: "/steps/0/bank", Message: "is no bank of ours"}
			return errors.Join(first, fmt.Errorf("steps: %w", &svc.Error{Message: "has too many steps"}), errors.New("is odd"))
		}
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "x", "x", content("X", "1"))
	refuse = true
	_, created := h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "y", Content: content("Y", "1")})
	_, patched := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Manifest: manifest(`{"version":"2"}`)})
	for _, err := range []error{created, patched} {
		is.Equal(err.Error(), "/manifest/steps/0/bank: is no bank of ours\n/manifest: has too many steps\n/manifest: is odd")
		wantCode(t, err, svc.CodeInvalid, "/manifest/steps/0/bank")
	}
	_, err := h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme", AliasID: ptr("z")})
	wantCode(t, err, svc.CodeSourceFailed, "")
	is.True(strings.Contains(err.Error(), "/manifest/steps/0/bank is no bank of ours"))
}

// A name fits into the indexes of every database: it is bytes that count there.
func TestNameInBytes(t *testing.T) {
	h := newHost(t)
	for name, ok := range map[string]bool{
		strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false, strings.Repeat("\u4e2d", 341): true, strings.Repeat("\u4e2d", 342): false,
	} {
		_, err := h.Templates.Create(t.Context(), admin, svc.NewTemplate{ID: "a", Content: content(name, "1")})
		if ok && err != nil {
			t.Error(err)
		} else if !ok {
			wantCode(t, err, svc.CodeInvalid, "/name")
		}
		_ = h.Templates.Delete(t.Context(), admin, "a")
	}
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

// A host's own code runs for those alone who have the right: its check of a manifest, and its marketplace's of an address.
func TestHostsCodeRunsForThoseWhoMay(t *testing.T) {
	is := is.New(t)
	ran := 0
	h := newHost(t, func(c *svc.Config) {
		c.Templates.ValidateManifest = func(json.RawMessage) error { ran++; return errors.New("no") }
		c.Sources.Marketplace = countedAddresses{c.Sources.Marketplace, &ran}
	})
	plain := svc.Principal{Kind: svc.KindUser, ID: "plain"}
	manifest := json.RawMessage(`{"version":"1"}`)
	for _, by := range []svc.Principal{plain, svc.Host} {
		_, created := h.Templates.Create(t.Context(), by, svc.NewTemplate{ID: "a", Content: svc.Content{Name: "A", Manifest: manifest}})
		_, patched := h.Templates.Patch(t.Context(), by, "a", svc.TemplatePatch{Manifest: manifest})
		_, registered := h.Sources.Register(t.Context(), by, svc.NewSource{URL: "https://example.com/a"})
		for _, err := range []error{created, patched, registered} {
			is.Equal(svc.ErrorCode(err) == svc.CodeForbidden, by.Kind != svc.KindHost)
		}
		is.Equal(ran == 0, by.Kind != svc.KindHost)
	}
	is.Equal(ran, 3)
	_, err := h.Templates.Create(t.Context(), plain, svc.NewTemplate{ID: "a"})
	is.Equal(svc.ErrorCode(err), svc.CodeInvalid) // the form of a request still comes first
}

// countedAddresses counts the addresses that a marketplace is asked about, and refuses them.
type countedAddresses struct {
	svc.Marketplace
	asked *int
}

func (m countedAddresses) CheckURL(string) error {
	*m.asked++
	return errors.New("no")
}

// One error joins so many, and says that there may be more.
func TestErrorsHaveAnEnd(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) {
		c.Templates.ValidateManifest = func(json.RawMessage) error {
			return errors.Join(slices.Repeat([]error{errors.New("no")}, 5000)...)
		}
	})
	_, manifest := h.Templates.Create(t.Context(), svc.Host, svc.NewTemplate{ID: "a", Content: svc.Content{Name: "A", Manifest: json.RawMessage(`{"version":"1"}`)}})
	rows := h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Users: make([]svc.User, 5000), Policies: make([]svc.Policy, 5000)})
	references := h.Access.Apply(t.Context(), svc.Host, svc.Bundle{Groups: []svc.Group{{ID: "g", Members: strings.Split(strings.Repeat("u ", 5000)+"u", " ")}}})
	for _, err := range []error{manifest, rows, references} {
		all := svc.Errors(err)
		is.Equal(len(all), limits.Errors+1)
		wantCode(t, all[limits.Errors], svc.CodeInvalid, "")
	}
	is.True(len(svc.Lint(svc.Bundle{Users: make([]svc.User, 500)}, nil)) >= 500) // what a person asks for is whole
}
