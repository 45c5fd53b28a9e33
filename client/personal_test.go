package client_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// The caller's own templates and sources are those of the Service, with their owner, apart from the server's.
func TestTemplatesOfOnesOwn(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.offer(catalogue)
	registered := must(s.client.MySources.Register(ctx, svc.NewSource{URL: "fs://acme", Alias: new("acme")}))
	is.Equal(registered.SourceKey, svc.SourceKey{Scope: svc.ScopePersonal, Owner: "admin", Name: "acme"})
	is.Equal(must(all(s.client.MySources.List(ctx))), []client.Source{registered})
	is.Equal(must(all(s.client.Sources.List(ctx))), []client.Source{})

	in := svc.Install{TemplateID: "notes", SourceName: "acme", SourceScope: svc.ScopePersonal, IdempotencyKey: "once"}
	notes := must(s.client.MyTemplates.Install(ctx, in))
	is.Equal(notes, must(s.client.MyTemplates.Install(ctx, in)))
	is.Equal(notes.TemplateKey, svc.TemplateKey{Scope: svc.ScopePersonal, Owner: "admin", ID: "notes"})
	is.Equal(notes.Origin.Source, registered.SourceKey)
	must(s.client.MyTemplates.Create(ctx, svc.NewTemplate{ID: "own", Content: svc.Content{Name: "Own", Manifest: []byte(`{"version":"1"}`)}}))
	is.Equal(len(must(all(s.client.MyTemplates.List(ctx, svc.TemplateQuery{})))), 2)
	is.Equal(len(must(all(s.client.Templates.List(ctx, svc.TemplateQuery{})))), 0)
	is.Equal(must(s.client.MyTemplates.Read(ctx, "notes")), notes)
	_, err := s.client.Templates.Read(ctx, "notes")
	is.Equal(svc.ErrorCode(err), svc.CodeNotFound)

	found := must(s.client.MySources.Search(ctx, svc.CatalogFilter{}))
	is.Equal(found[0].Source, svc.SourceKey{Scope: svc.ScopePersonal, Name: "acme"})
	is.Equal(found[0].Templates, must(s.client.MySources.Browse(ctx, "acme", svc.CatalogFilter{})).Templates)
	is.Equal(found[0].Templates[0].InstalledAs, []string{"notes"})
	is.Equal(must(s.client.MySources.Rebind(ctx, "acme")), []string{})
	is.Equal(must(s.client.MyTemplates.CheckUpdates(ctx)).Sources[0].Source, svc.SourceKey{Scope: svc.ScopePersonal, Name: "acme"})
	is.Equal(must(s.client.MyTemplates.CheckUpdate(ctx, "notes")).HasUpdate, false)
	is.Equal(must(s.client.MyTemplates.Diff(ctx, "notes")).Changes, []svc.ContentChange{})
	patched := must(s.client.MyTemplates.Patch(ctx, "notes", svc.TemplatePatch{Name: new("Mine")}, notes.ETag()))
	is.Equal(patched.Name, "Mine")
	is.Equal(len(must(all(s.client.MyTemplates.History(ctx, "notes")))), 1)
	is.Equal(must(s.client.MyTemplates.Rollback(ctx, "notes", 1)).Name, notes.Name)
	is.Equal(must(s.client.MyTemplates.Update(ctx, "notes", svc.UpdateRequest{})).Updated, false)

	is.NoErr(s.client.MyTemplates.Delete(ctx, "own"))
	is.NoErr(s.client.MySources.Remove(ctx, "acme"))
	is.Equal(len(must(all(s.client.MyTemplates.List(ctx, svc.TemplateQuery{})))), 1)
	_, err = s.client.As("session-of-alice").MyTemplates.Read(ctx, "notes")
	is.Equal(svc.ErrorCode(err), svc.CodeForbidden)
}
