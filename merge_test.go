package svc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
		"keys apart": {with(`{` + v + `}`), with(`{` + v + `,"a":1.0}`), with(`{"b":1e400,` + v + `}`), with(`{"a":1.0,"b":1e400,` + v + `}`), nil},
		"a key changed here and one there": {with(`{` + v + `,"a":{"x":1,"y":1}}`), with(`{` + v + `,"a":{"x":2,"y":1}}`), with(`{` + v + `,"a":{"x":1,"y":3}}`),
			with(`{"a":{"x":2,"y":3},` + v + `}`), nil},
		"taken away here, another there": {with(`{` + v + `,"a":1,"b":1,"c":1}`), with(`{` + v + `,"b":1,"c":1}`), with(`{` + v + `,"a":1,"c":1}`), with(`{"c":1,` + v + `}`), nil},
		"alike":                          {with(`{` + v + `}`), with(`{` + v + `,"a":[1]}`), with(`{` + v + `,"a":[1.0]}`), with(`{` + v + `,"a":[1.0]}`), nil},
		"not alike":                      {with(`{` + v + `,"a":1}`), with(`{` + v + `,"a":2}`), with(`{` + v + `,"a":3}`), svc.Content{}, []string{"manifest"}},
		"lists are whole":                {with(`{` + v + `,"a":[1]}`), with(`{` + v + `,"a":[1,2]}`), with(`{` + v + `,"a":[0,1]}`), svc.Content{}, []string{"manifest"}},
		"changed here, taken away there": {with(`{` + v + `,"a":1}`), with(`{` + v + `,"a":2}`), with(`{` + v + `}`), svc.Content{}, []string{"manifest"}},
		"an object that became none":     {with(`{` + v + `,"a":{"x":1}}`), with(`{` + v + `,"a":{"x":2}}`), with(`{` + v + `,"a":null}`), svc.Content{}, []string{"manifest"}},
		"odd keys":                       {with(`{` + v + `}`), with(`{` + v + `,"a\"\\\n😀":1}`), with(`{` + v + `,"":{"a":{}}}`), with(`{"":{"a":{}},"a\"\\\n😀":1,` + v + `}`), nil},
		"texts and lists": {fields(with(`{`+v+`}`), nil, "t"), fields(with(`{`+v+`}`), new("ours"), "t"), fields(with(`{`+v+`}`), nil, "t", "theirs"),
			fields(with(`{`+v+`}`), new("ours"), "t", "theirs"), nil},
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

// What only one has changed is what comes out, whoever it is; and it matters not who is who, but for how it is written.
func TestMergeProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	merged := func(base, ours, theirs svc.Content) (string, bool) {
		c, conflicts := svc.Merge(base, ours, theirs)
		if conflicts != nil {
			return "", false
		}
		r, err := c.Revision()
		if err != nil {
			t.Fatalf("%v: %s", err, c.Manifest)
		}
		return r, true
	}
	clean := 0
	for range 3000 {
		base, a, b := someContent(random), someContent(random), someContent(random)
		for _, c := range [][3]svc.Content{{base, a, base}, {base, base, a}, {base, a, a}} {
			if got, ok := merged(c[0], c[1], c[2]); !ok || got != revision(t, a) {
				t.Fatalf("%s of %s and %s is not %s", c[0].Manifest, c[1].Manifest, c[2].Manifest, a.Manifest)
			}
		}
		ab, okAB := merged(base, a, b)
		ba, okBA := merged(base, b, a)
		if okAB != okBA || ab != ba {
			t.Fatalf("%s: %s and %s merge otherwise the other way round", base.Manifest, a.Manifest, b.Manifest)
		}
		if okAB {
			clean++
		}
	}
	if clean < 100 {
		t.Errorf("only %d of 3000 merged without conflict", clean)
	}
}

func someContent(random *rand.Rand) svc.Content {
	c := svc.Content{Name: "n", Integrations: []string{}, Tags: []string{}}
	if random.IntN(4) == 0 {
		c.Description = new(fmt.Sprint(random.IntN(2)))
	}
	c.Manifest, _ = json.Marshal(someObject(random, 3))
	return c
}

func someObject(random *rand.Rand, depth int) map[string]any {
	object := map[string]any{"version": "1"}
	for _, key := range []string{"a", "b"} {
		switch random.IntN(4) {
		case 0:
			object[key] = random.IntN(2)
		case 1:
			if depth > 0 {
				object[key] = someObject(random, depth-1)
			}
		case 2:
			object[key] = []int{random.IntN(2)}
		}
	}
	return object
}

func fieldsOf(err error) []string {
	if e, is := errors.AsType[*svc.Error](err); is {
		return e.Fields
	}
	return nil
}
