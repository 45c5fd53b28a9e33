package svc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// merging is a host whose template "x" was installed with one content, edited to another, and is to be updated to a third.
func merging(t *testing.T, edits svc.LocalEdits, base, ours, theirs svc.Content) *host {
	t.Helper()
	h := newHost(t, func(c *svc.Config) { c.Templates.LocalEdits = edits })
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "x", "x", base)
	_, err := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{
		Name: &ours.Name, Description: &svc.TextPatch{Value: ours.Description}, Category: &svc.TextPatch{Value: ours.Category},
		Integrations: &ours.Integrations, Tags: &ours.Tags, Manifest: ours.Manifest,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.market.put(acme, "x", theirs)
	h.actions()
	return h
}

func TestLocalEdits(t *testing.T) {
	is := is.New(t)
	base, ours, theirs := content("X", "1"), content("Ours", "1"), content("X", "2")
	for edits, want := range map[svc.LocalEdits]struct {
		name, manifest string
		code           svc.Code
	}{
		"":                 {code: svc.CodeEdited},
		svc.EditsConflict:  {code: svc.CodeEdited},
		svc.EditsOverwrite: {name: "X", manifest: `{"version":"2"}`},
		svc.EditsMerge:     {name: "Ours", manifest: `{"version":"2"}`},
	} {
		h := merging(t, edits, base, ours, theirs)
		update, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
		is.Equal(svc.ErrorCode(err), want.code)
		if err != nil {
			continue
		}
		is.Equal(update.Updated, true)
		is.Equal(update.Template.Name, want.name)
		is.Equal(string(update.Template.Manifest), want.manifest)
		is.Equal(update.NewRevision, revision(t, theirs))
		is.Equal(update.Template.Origin.Revision, revision(t, theirs))
		is.Equal(update.Template.Origin.Base.Name, "X")
		is.Equal(history(t, h, "x")[0].Name, "Ours") // what was edited can be had back
		is.Equal(must(h.Templates.CheckUpdate(t.Context(), admin, "x")).HasUpdate, false)

		h = merging(t, edits, base, ours, base)
		update = must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{}))
		is.Equal(update.Updated, false) // nothing to bring
		is.Equal(update.Template.Name, "Ours")
		h = merging(t, edits, base, ours, theirs)
		update = must(h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.TakeTheirs}))
		is.Equal(update.Template.Name, "X") // force replaces, whatever is chosen
	}
	_, err := svc.New(svc.Config{Store: newHost(t).store, Templates: svc.TemplateConfig{LocalEdits: "keep"}})
	is.True(err != nil)
}

func TestMerge(t *testing.T) {
	with := func(m string) svc.Content {
		c := content("X", "1")
		c.Manifest = manifest(m)
		return c
	}
	fields := func(c svc.Content, description *string, tags ...string) svc.Content {
		c.Description, c.Tags = description, tags
		return c
	}
	const v = `"version":"1"`
	for name, c := range map[string]struct {
		base, ours, theirs, want svc.Content
		conflicts                []string
	}{
		"keys apart": {with(`{` + v + `}`), with(`{` + v + `,"a":1.0}`), with(`{"b":1e400,` + v + `}`), with(`{` + v + `,"a":1.0,"b":1e400}`), nil},
		"not alike":  {with(`{` + v + `,"a":1}`), with(`{` + v + `,"a":2}`), with(`{` + v + `,"a":3}`), svc.Content{}, []string{"manifest"}},
		"texts and lists": {fields(with(`{`+v+`}`), nil, "t"), fields(with(`{`+v+`}`), new("ours"), "t"), fields(with(`{`+v+`}`), nil, "t", "theirs"),
			fields(with(`{`+v+`}`), new("ours"), "t", "theirs"), nil},
		"alike, whatever they are": {fields(with(`{`+v+`}`), nil, "t"), fields(with(`{`+v+`}`), new("same"), "t", "u"), fields(with(`{`+v+`}`), new("same"), "t", "u"),
			fields(with(`{`+v+`}`), new("same"), "t", "u"), nil},
		"an empty text is one": {fields(with(`{`+v+`}`), nil), fields(with(`{`+v+`}`), new("")), fields(with(`{`+v+`}`), new("theirs")), svc.Content{}, []string{"description"}},
		"all of them": {content("A", "1"), fields(content("B", "2"), new("ours"), "o"), fields(content("C", "3"), new("theirs"), "p"), svc.Content{},
			[]string{"name", "description", "tags", "manifest"}},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			h := merging(t, svc.EditsMerge, c.base, c.ours, c.theirs)
			update, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
			if c.conflicts != nil {
				wantCode(t, err, svc.CodeEdited, "")
				is.Equal(fieldsOf(err), c.conflicts)
				is.Equal(len(h.actions()), 0)
				return
			}
			is.NoErr(err)
			c.want.Integrations = []string{}
			is.Equal(update.Template.Content, c.want)
			is.Equal(h.actions(), []string{"template.updated template/x by admin"})
		})
	}
}

// What both come to may be bad for the host, though neither is.
func TestMergeIsChecked(t *testing.T) {
	is := is.New(t)
	h := newHost(t, func(c *svc.Config) {
		c.Templates.LocalEdits = svc.EditsMerge
		c.Templates.ValidateManifest = func(m json.RawMessage) error {
			var fields map[string]any
			if _ = json.Unmarshal(m, &fields); fields["a"] != nil && fields["b"] != nil {
				return fmt.Errorf("must not have both a and b")
			}
			return nil
		}
	})
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	h.install(t, "x", "x", content("X", "1"))
	must(h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Manifest: manifest(`{"version":"1","a":1}`)}))
	theirs := content("X", "1")
	theirs.Manifest = manifest(`{"version":"1","b":1}`)
	h.market.put(acme, "x", theirs)
	_, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
	wantCode(t, err, svc.CodeEdited, "")
	is.Equal(fieldsOf(err), []string{"manifest"})
}

func fieldsOf(err error) []string {
	if e, is := errors.AsType[*svc.Error](err); is {
		return e.Fields
	}
	return nil
}

// templateDiff installs base, patches it to ours and lets the source have theirs.
func templateDiff(t *testing.T, base, ours, theirs svc.Content) svc.TemplateDiff {
	t.Helper()
	is := is.New(t)
	h := newHost(t)
	h.market.put(acme, "x", base)
	must(h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}))
	must(h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"}))
	_, err := h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{
		Name: &ours.Name, Description: &svc.TextPatch{Value: ours.Description}, Category: &svc.TextPatch{Value: ours.Category}, Tags: &ours.Tags, Manifest: ours.Manifest,
	})
	is.NoErr(err)
	h.market.put(acme, "x", theirs)
	h.actions()
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
	h, _ := withTemplate(t)
	create(t, h, "made", svc.Content{})
	wantCode(t, errorOf(h.Templates.Diff(t.Context(), admin, "made")), svc.CodeInvalid, "template_id")
	is.New(t).NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	wantCode(t, errorOf(h.Templates.Diff(t.Context(), admin, "x")), svc.CodeNotFound, "")
}
