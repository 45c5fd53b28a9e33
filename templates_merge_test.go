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
	if _, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme}); err != nil {
		t.Fatal(err)
	}
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
		check, err := h.Templates.CheckUpdate(t.Context(), admin, "x")
		is.NoErr(err)
		is.Equal(check.HasUpdate, false)

		h = merging(t, edits, base, ours, base)
		update, err = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
		is.NoErr(err)
		is.Equal(update.Updated, false) // nothing to bring
		is.Equal(update.Template.Name, "Ours")
		h = merging(t, edits, base, ours, theirs)
		update, err = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{Force: true})
		is.NoErr(err)
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
		"a key changed here and one there": {with(`{` + v + `,"a":{"x":1,"y":1}}`), with(`{` + v + `,"a":{"x":2,"y":1}}`), with(`{` + v + `,"a":{"x":1,"y":3}}`),
			with(`{` + v + `,"a":{"x":2,"y":3}}`), nil},
		"taken away here, another there": {with(`{` + v + `,"a":1,"b":1,"c":1}`), with(`{` + v + `,"b":1,"c":1}`), with(`{` + v + `,"a":1,"c":1}`), with(`{` + v + `,"c":1}`), nil},
		"alike":                          {with(`{` + v + `}`), with(`{` + v + `,"a":[1]}`), with(`{` + v + `,"a":[1.0]}`), with(`{` + v + `,"a":[1.0]}`), nil},
		"not alike":                      {with(`{` + v + `,"a":1}`), with(`{` + v + `,"a":2}`), with(`{` + v + `,"a":3}`), svc.Content{}, []string{"manifest"}},
		"lists are whole":                {with(`{` + v + `,"a":[1]}`), with(`{` + v + `,"a":[1,2]}`), with(`{` + v + `,"a":[0,1]}`), svc.Content{}, []string{"manifest"}},
		"changed here, taken away there": {with(`{` + v + `,"a":1}`), with(`{` + v + `,"a":2}`), with(`{` + v + `}`), svc.Content{}, []string{"manifest"}},
		"an object that became none":     {with(`{` + v + `,"a":{"x":1}}`), with(`{` + v + `,"a":{"x":2}}`), with(`{` + v + `,"a":null}`), svc.Content{}, []string{"manifest"}},
		"odd keys":                       {with(`{` + v + `}`), with(`{` + v + `,"a\"\\\n😀":1}`), with(`{` + v + `,"":{"a":{}}}`), with(`{` + v + `,"a\"\\\n😀":1,"":{"a":{}}}`), nil},
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
// A merge moves no key of the template: what the source adds follows, and digits stay.
func TestMergeKeepsTheOrderOfKeys(t *testing.T) {
	is := is.New(t)
	with := func(manifest string) svc.Content {
		c := content("X", "1")
		c.Manifest = json.RawMessage(manifest)
		return c
	}
	h := merging(t, "", with(`{"version":"1","z":1,"a":{"y":1,"x":1.50}}`), with(`{"version":"1","z":2,"a":{"y":1,"x":1.50}}`),
		with(`{"k":1e2,"a":{"b":0,"x":1.5,"y":10},"z":1,"version":"1","c":{"q":1,"p":2}}`))
	update, err := h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{LocalEdits: svc.EditsMerge})
	is.NoErr(err)
	const want = `{"version":"1","z":2,"a":{"y":10,"x":1.50,"b":0},"k":1e2,"c":{"q":1,"p":2}}`
	is.Equal(string(update.Template.Manifest), want)
	read, err := h.Templates.Read(t.Context(), admin, "x")
	is.NoErr(err)
	is.Equal(string(read.Manifest), want)
}

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
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})
	is.NoErr(err)
	h.install(t, "x", "x", content("X", "1"))
	_, err = h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{Manifest: manifest(`{"version":"1","a":1}`)})
	is.NoErr(err)
	theirs := content("X", "1")
	theirs.Manifest = manifest(`{"version":"1","b":1}`)
	h.market.put(acme, "x", theirs)
	_, err = h.Templates.Update(t.Context(), admin, "x", svc.UpdateRequest{})
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
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: acme})
	is.NoErr(err)
	_, err = h.Templates.Install(t.Context(), admin, svc.Install{TemplateID: "x", SourceName: "acme"})
	is.NoErr(err)
	_, err = h.Templates.Patch(t.Context(), admin, "x", svc.TemplatePatch{
		Name: &ours.Name, Description: &svc.TextPatch{Value: ours.Description}, Category: &svc.TextPatch{Value: ours.Category}, Tags: &ours.Tags, Manifest: ours.Manifest,
	})
	is.NoErr(err)
	h.market.put(acme, "x", theirs)
	h.actions()
	diff, err := h.Templates.Diff(t.Context(), admin, "x")
	is.NoErr(err)
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

// A diff stays about as long as what it compares, however many and deep the places are.
func TestDiffOfTemplateIsBounded(t *testing.T) {
	object := func(members int, value string) string {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, `,"k%d":%s`, i, value)
		}
		return "{" + b.String()[1:] + "}"
	}
	deep := func(value string) string {
		return strings.Repeat(`{"a":`, 50) + value + strings.Repeat(`}`, 50)
	}
	long := strings.Repeat("k", 50_000)
	for name, of := range map[string]func(value string) string{
		"many":            func(v string) string { return object(50_000, v) },
		"many, below few": func(v string) string { return object(10, object(5_000, v)) },
		"deep":            deep,
		"long names":      func(v string) string { return `{"` + long + `":` + object(900, v) + `}` },
	} {
		t.Run(name, func(t *testing.T) {
			of := func(v string) svc.Content {
				return svc.Content{Name: "X", Manifest: manifest(`{"version":"1","o":` + of(v) + `}`)}
			}
			base, theirs := of("1"), of("2")
			diff := templateDiff(t, base, base, theirs)
			size := 0
			for _, c := range diff.Changes {
				size += len(c.Path) + len(c.Base) + len(c.Ours) + len(c.Theirs)
			}
			if most := 4 * len(base.Manifest); len(diff.Changes) == 0 || len(diff.Changes) > 1000 || size > most+1_000_000 {
				t.Errorf("%d changes of %d bytes", len(diff.Changes), size)
			}
		})
	}
}

func TestDiffOfTemplateRefuses(t *testing.T) {
	is := is.New(t)
	h, _ := withTemplate(t)
	create(t, h, "made", svc.Content{})
	_, err := h.Templates.Diff(t.Context(), admin, "made")
	wantCode(t, err, svc.CodeInvalid, "template_id")
	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	_, err = h.Templates.Diff(t.Context(), admin, "x")
	wantCode(t, err, svc.CodeNotFound, "")
}
