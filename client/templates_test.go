package client_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

const catalogue = `{"templates": [
  {"id": "notes", "name": "Notes <&>", "description": "", "category": "work", "integrations": ["mcp"], "tags": ["a", "a"],
   "manifest": {"version": "1", "steps": [1.50, 9007199254740993], "html": "<b>&\u2028", "none": null}},
  {"id": "mail", "name": "Mail", "manifest": {"version": "1"}},
  {"id": "bad", "name": "", "manifest": {"version": "1"}},
  {"name": "worse", "manifest": {"version": "1"}}]}`

// told is what the interface tells of a template of the Service.
func told(t svc.Template) svc.Template {
	t.Version = 0
	if t.Origin != nil {
		t.Origin = &svc.Origin{Source: t.Origin.Source, Revision: t.Origin.Revision}
	}
	return t
}

// kept is a template as the server has it now.
func (s *site) kept(id string) svc.Template {
	s.t.Helper()
	return told(must(s.Templates.Read(s.t.Context(), svc.Host, id)))
}

func TestTemplateByHand(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	in := svc.NewTemplate{ID: "a", Content: svc.Content{
		Name: "Ä <&>", Description: new(""), Category: new("work"), Integrations: []string{"x"}, Tags: []string{"t", "t"},
		Manifest: []byte(`{ "version":"1", "n":[1.50,1e400], "s":"<&>\u2028\u003c" }`),
	}}
	created, err := s.client.Templates.Create(ctx, in)
	is.NoErr(err)
	is.Equal(created, s.kept("a"))
	is.Equal(string(created.Manifest), `{"version":"1","n":[1.50,1e400],"s":"<&>\u2028\u003c"}`)
	is.Equal(created.Origin, nil)
	got, err := s.client.Templates.Read(ctx, "a")
	is.NoErr(err)
	is.Equal(got, created)

	least, err := s.client.Templates.Create(ctx, svc.NewTemplate{ID: "b", Content: svc.Content{Name: "b", Manifest: []byte(`{"version":"1"}`)}})
	is.NoErr(err)
	is.Equal(least, s.kept("b"))
	is.True(least.Description == nil && least.Integrations != nil && least.Tags != nil)

	is.NoErr(s.client.Templates.Delete(ctx, "a"))
	_, err = s.client.Templates.Read(ctx, "a")
	is.Equal(svc.ErrorCode(err), svc.CodeNotFound)
}

func TestTemplates(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	none, err := all(s.client.Templates.List(ctx, svc.TemplateQuery{}))
	is.NoErr(err)
	is.Equal(len(none), 0)
	for _, id := range []string{"b", "a", "c"} {
		s.create(id, func(in *svc.NewTemplate) {
			in.Category, in.Tags = new("c&d=+ ;"), []string{"tag of " + id, "ü"}
		})
	}
	s.create("d")
	first := must(all(s.client.Templates.List(ctx, svc.TemplateQuery{Limit: 1})))[0]
	for _, query := range []svc.TemplateQuery{
		{}, {Category: "c&d=+ ;"}, {Tag: "tag of a"}, {Category: "c&d=+ ;", Tag: "ü"}, {Tag: "none"},
		{Limit: 1}, {Limit: 4}, {Limit: 2000}, {Tag: "ü", Limit: 2},
		{AfterName: first.Name, AfterID: first.ID}, {AfterName: first.Name, AfterID: first.ID, Limit: 2},
	} {
		got, err := all(s.client.Templates.List(ctx, query))
		is.NoErr(err)
		want := must(all(s.Templates.List(ctx, svc.Host, query)))
		for i := range want {
			want[i] = told(want[i])
		}
		is.Equal(got, want)
	}
	is.Equal(len(must(all(s.client.Templates.List(ctx, svc.TemplateQuery{Tag: "ü"})))), 3)
	for _, wrong := range []svc.TemplateQuery{{Skip: 1}, {Limit: -1}, {AfterName: "\x00"}} {
		_, err := all(s.client.Templates.List(ctx, wrong))
		is.Equal(svc.ErrorCode(err), svc.CodeInvalid)
	}
}

func TestPatchTemplate(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.create("a", func(in *svc.NewTemplate) {
		in.Description, in.Category, in.Integrations, in.Tags = new("d"), new("c"), []string{"i"}, []string{"t"}
	})
	for _, patch := range []svc.TemplatePatch{
		{},
		{Name: new("new <name>")},
		{Description: &svc.TextPatch{}},
		{Description: &svc.TextPatch{Value: new("")}},
		{Category: &svc.TextPatch{Value: new("other")}},
		{Category: &svc.TextPatch{}},
		{Tags: &[]string{}},
		{Integrations: new([]string)},
		{Tags: &[]string{"x", "x"}, Integrations: &[]string{"<y>"}},
		{Manifest: []byte(`{"version": "2", "a": "<>"}`)},
	} {
		s.tick()
		before := s.kept("a")
		got, err := s.client.Templates.Patch(ctx, "a", patch)
		is.NoErr(err)
		is.Equal(got, s.kept("a"))
		want := before
		apply(&want, patch)
		if want.UpdatedAt = before.UpdatedAt; !got.UpdatedAt.Equal(before.UpdatedAt) {
			want.UpdatedAt = s.clock().Truncate(time.Microsecond)
		}
		is.Equal(got, want) // and nothing else has changed
	}
}

// A change is made only to what the client has seen, if it wants that.
func TestIfMatch(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.register(catalogue)
	first := must(s.client.Templates.Install(ctx, svc.Install{TemplateID: "notes", SourceName: "acme"}))
	is.Equal(first.ETag(), must(s.Templates.Read(ctx, svc.Host, "notes")).ETag())
	s.tick()
	patch := svc.TemplatePatch{Name: new("other")}
	second := must(s.client.Templates.Patch(ctx, "notes", patch, `"x"`, first.ETag()))
	_, patched := s.client.Templates.Patch(ctx, "notes", patch, first.ETag())
	_, updated := s.client.Templates.Update(ctx, "notes", svc.UpdateRequest{Force: true}, first.ETag())
	_, rolled := s.client.Templates.Rollback(ctx, "notes", 1, first.ETag())
	for _, err := range []error{patched, updated, rolled, s.client.Templates.Delete(ctx, "notes", first.ETag())} {
		is.Equal(svc.ErrorCode(err), svc.CodePrecondition)
	}
	s.tick()
	third := must(s.client.Templates.Update(ctx, "notes", svc.UpdateRequest{Force: true}, second.ETag()))
	must(s.client.Templates.Rollback(ctx, "notes", 1, third.Template.ETag(), svc.AnyETag))
}

// apply is what a patch means, field by field.
func apply(t *svc.Template, patch svc.TemplatePatch) {
	if patch.Name != nil {
		t.Name = *patch.Name
	}
	if patch.Description != nil {
		t.Description = patch.Description.Value
	}
	if patch.Category != nil {
		t.Category = patch.Category.Value
	}
	if patch.Integrations != nil {
		t.Integrations = append([]string{}, *patch.Integrations...)
	}
	if patch.Tags != nil {
		t.Tags = append([]string{}, *patch.Tags...)
	}
	if patch.Manifest != nil {
		t.Manifest = json.RawMessage(strings.ReplaceAll(string(patch.Manifest), " ", ""))
	}
}

func TestInstalledTemplate(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.register(catalogue)
	installed, err := s.client.Templates.Install(ctx, svc.Install{TemplateID: "notes", SourceName: "acme", AliasID: new("mine")})
	is.NoErr(err)
	is.Equal(installed, s.kept("mine"))
	is.Equal(installed.Origin.Source, svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"})
	is.True(strings.HasPrefix(installed.Origin.Revision, "sha256:"))
	_, err = s.client.Templates.Install(ctx, svc.Install{TemplateID: "mail", SourceName: "acme", SourceScope: svc.ScopeServer})
	is.NoErr(err)
	_, err = s.client.Templates.Install(ctx, svc.Install{TemplateID: "mail", SourceName: "acme", SourceScope: svc.ScopePersonal, AliasID: new("x")})
	is.Equal(svc.ErrorCode(err), svc.CodeNotFound)

	check := func(id string, has bool) {
		t.Helper()
		got, err := s.client.Templates.CheckUpdate(ctx, id)
		is.NoErr(err)
		is.Equal(got, must(s.Templates.CheckUpdate(ctx, svc.Host, id)))
		is.Equal(got.HasUpdate, has)
	}
	check("mine", false)
	s.create("by hand")
	check("by hand", false)
	s.offer(strings.Replace(catalogue, "1.50", "1.75", 1))
	check("mine", true)

	diff, err := s.client.Templates.Diff(ctx, "mine")
	is.NoErr(err)
	is.Equal(diff, must(s.Templates.Diff(ctx, svc.Host, "mine")))
	is.Equal(len(diff.Changes), 1)
	same, err := s.client.Templates.Diff(ctx, "mail")
	is.NoErr(err)
	is.Equal(same, must(s.Templates.Diff(ctx, svc.Host, "mail")))

	s.tick()
	update, err := s.client.Templates.Update(ctx, "mine", svc.UpdateRequest{})
	is.NoErr(err)
	is.Equal(update, svc.Update{
		Updated: true, PreviousRevision: installed.Origin.Revision, NewRevision: diff.LatestRevision, Template: s.kept("mine"),
	})
	update, err = s.client.Templates.Update(ctx, "mine", svc.UpdateRequest{})
	is.NoErr(err)
	is.Equal(update, svc.Update{PreviousRevision: diff.LatestRevision, NewRevision: diff.LatestRevision, Template: s.kept("mine")})
	update, err = s.client.Templates.Update(ctx, "mine", svc.UpdateRequest{Force: true})
	is.NoErr(err)
	is.True(update.Updated)

	s.offer(`{"templates": []}`)
	check("mine", false)
}

// A place that a content does not have, and one where it has null, are two things.
func TestDiffOfNull(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.register(`{"templates": [{"id": "a", "name": "a", "manifest": {"version": "1", "n": null, "x": "<1>"}}]}`)
	must(s.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "a", SourceName: "acme"}))
	must(s.client.Templates.Patch(ctx, "a", svc.TemplatePatch{Manifest: []byte(`{"version":"1","x":2}`), Category: &svc.TextPatch{Value: new("c")}}))
	s.offer(`{"templates": [{"id": "a", "name": "a", "manifest": {"version": "1", "n": null, "x": 3}}]}`)
	got, err := s.client.Templates.Diff(ctx, "a")
	is.NoErr(err)
	is.Equal(got, must(s.Templates.Diff(ctx, svc.Host, "a")))
	is.Equal(got.Changes[0], svc.ContentChange{
		Path: "/category", Base: json.RawMessage("null"), Ours: json.RawMessage(`"c"`), Theirs: json.RawMessage("null"),
	})
	is.Equal(got.Changes[1].Ours, nil)
	is.True(slices.ContainsFunc(got.Changes, svc.ContentChange.Conflict))
}

// A template may come from a source that a user owns.
func TestTemplateOfAPersonalSource(t *testing.T) {
	is := is.New(t)
	c := dial(t, says(200, "application/json", `{"id":"a","name":"A","description":null,"category":null,"integrations":[],"tags":[],
		"scope":"personal","owner":"alice","source_name":"s","source_scope":"personal","source_owner":"bob","source_revision":"r",
		"installed_at":"2026-01-02T03:04:05.678901Z","updated_at":"2026-01-02T03:04:06.000000Z","manifest":{"version":"1"}}`))
	got, err := c.Templates.Read(t.Context(), "a")
	is.NoErr(err)
	is.Equal(got, svc.Template{
		TemplateKey: svc.TemplateKey{Scope: svc.ScopePersonal, Owner: "alice", ID: "a"},
		Content:     svc.Content{Name: "A", Integrations: []string{}, Tags: []string{}, Manifest: json.RawMessage(`{"version":"1"}`)},
		Origin:      &svc.Origin{Source: svc.SourceKey{Scope: svc.ScopePersonal, Owner: "bob", Name: "s"}, Revision: "r"},
		InstalledAt: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC), UpdatedAt: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	})
}

func TestHistory(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.register(catalogue)
	must(s.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "notes", SourceName: "acme"}))
	for _, name := range []string{"one", "two"} {
		s.tick()
		must(s.client.Templates.Patch(ctx, "notes", svc.TemplatePatch{Name: &name}))
	}
	history, err := all(s.client.Templates.History(ctx, "notes"))
	is.NoErr(err)
	is.Equal(history, must(all(s.Templates.History(ctx, svc.Host, "notes"))))
	is.Equal(len(history), 2)

	s.tick()
	back, err := s.client.Templates.Rollback(ctx, "notes", 1)
	is.NoErr(err)
	is.Equal(back, s.kept("notes"))
	is.Equal(back.Name, "Notes <&>")
}
