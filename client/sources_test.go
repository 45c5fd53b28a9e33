package client_test

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/client"
)

// shown is what the interface shows of a source of the Service.
func shown(s svc.Source) client.Source {
	return client.Source{
		SourceKey: s.SourceKey, URL: s.URL, Description: s.Description, HasAuth: s.HasAuth(), SigningKey: s.SigningKey, Serial: s.Serial, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

func (s *site) sources() []client.Source {
	s.t.Helper()
	list := []client.Source{}
	for _, source := range must(all(s.Sources.List(s.t.Context(), svc.Host))) {
		list = append(list, shown(source))
	}
	return list
}

func TestSources(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	list, err := all(s.client.Sources.List(ctx))
	is.NoErr(err)
	is.Equal(len(list), 0)

	secret := svc.Secret("the-token-of-the-source")
	b, err := s.client.Sources.Register(ctx, svc.NewSource{
		URL: "fs://acme/x", Alias: new("b"), AuthToken: &secret, Description: new(""),
	})
	is.NoErr(err)
	is.True(b.HasAuth)
	s.tick()
	a, err := s.client.Sources.Register(ctx, svc.NewSource{URL: "fs://acme/alias", SigningKey: make([]byte, 32)})
	is.NoErr(err)
	is.True(!a.HasAuth)

	list, err = all(s.client.Sources.List(ctx))
	is.NoErr(err)
	is.Equal(list, []client.Source{a, b})
	is.Equal(list, s.sources())

	is.NoErr(s.client.Sources.Remove(ctx, "b"))
	is.Equal(s.sources(), []client.Source{a})
}

// Templates of a source with a new address can be bound to that address.
func TestRebindSource(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.register(catalogue)
	must(s.client.Templates.Install(ctx, svc.Install{TemplateID: "notes", SourceName: "acme"}))
	is.NoErr(s.client.Sources.Remove(ctx, "acme"))
	must(s.client.Sources.Register(ctx, svc.NewSource{URL: "fs://acme/.x", Alias: new("acme")}))
	_, err := s.client.Templates.CheckUpdate(ctx, "notes")
	is.Equal(svc.ErrorCode(err), svc.CodeSourceMoved)
	is.Equal(must(s.client.Sources.Rebind(ctx, "acme")), []string{"notes"})
	is.Equal(must(s.client.Sources.Rebind(ctx, "acme")), []string{})
}

func TestSearchSources(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	is.Equal(must(s.client.Sources.Search(ctx, svc.CatalogFilter{})), []svc.SourceListing{})
	s.register(catalogue)
	must(s.client.Sources.Register(ctx, svc.NewSource{URL: "fs://acme/none", Alias: new("broken")}))
	for _, filter := range []svc.CatalogFilter{{}, {Text: "notes"}, {Tag: "none"}} {
		got := must(s.client.Sources.Search(ctx, filter))
		is.Equal(len(got), 2)
		is.Equal(got[0].SourceTemplates.Templates, must(s.client.Sources.Browse(ctx, "acme", filter)).Templates)
		is.Equal(got[0].Problem, "")
		want := must(s.Service.Sources.Search(ctx, svc.Host, filter))[1]
		want.Templates, want.Bad = []svc.SourceTemplate{}, []svc.CatalogProblem{}
		is.Equal(got[1], want)
		is.True(got[1].Problem != "")
	}
}

func TestCheckUpdates(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	is.Equal(must(s.client.Templates.CheckUpdates(ctx)), svc.UpdateReport{Templates: []svc.TemplateUpdate{}, Sources: []svc.SourceReport{}})
	s.register(catalogue)
	must(s.client.Templates.Install(ctx, svc.Install{TemplateID: "notes", SourceName: "acme"}))
	must(s.client.Templates.Install(ctx, svc.Install{TemplateID: "mail", SourceName: "acme"}))
	s.offer(`{"templates": [{"id": "notes", "name": "Other", "manifest": {"version": "1"}}]}`)
	got := must(s.client.Templates.CheckUpdates(ctx))
	is.Equal(got, must(s.Service.Templates.CheckUpdates(ctx, svc.Host, nil)))
	is.Equal(len(got.Templates), 2)
	s.market.fail(errors.New("gone"))
	got = must(s.client.Templates.CheckUpdates(ctx))
	is.Equal(got, must(s.Service.Templates.CheckUpdates(ctx, svc.Host, nil)))
	is.True(got.Sources[0].Problem != "")
}

// The token reaches the source as it was given.
func TestSourceTokenIsSent(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	secret := svc.Secret("the-token-of-the-source")
	must(s.client.Sources.Register(ctx, svc.NewSource{URL: "fs://acme", Alias: new("a"), AuthToken: &secret}))
	s.offer(catalogue)
	must(s.client.Templates.Install(ctx, svc.Install{TemplateID: "mail", SourceName: "a"}))
	is.Equal(s.market.from().Token, secret)
}

func TestSourceTemplates(t *testing.T) {
	is := is.New(t)
	s, ctx := newSite(t), t.Context()
	s.register(catalogue)
	must(s.Templates.Install(ctx, svc.Host, svc.Install{TemplateID: "notes", SourceName: "acme"}))
	for _, filter := range []svc.CatalogFilter{{}, {Category: "work"}, {Tag: "a"}, {Tag: "none"}, {Text: "no TE"}, {Text: "none"}} {
		got, err := s.client.Sources.Browse(ctx, "acme", filter)
		is.NoErr(err)
		want := must(s.Sources.Browse(ctx, svc.Host, "acme", filter))
		for i := range want.Templates {
			entry := &want.Templates[i]
			entry.Index, entry.ManifestFile, entry.Content.Manifest = 0, "", nil
		}
		want.FetchedAt = got.FetchedAt // each is fetched anew
		is.Equal(got, want)
		is.True(!got.FetchedAt.IsZero())
	}
	got := must(s.client.Sources.Browse(ctx, "acme", svc.CatalogFilter{}))
	is.Equal(len(got.Templates), 2)
	is.Equal(*got.Templates[0].Behind, false)
	is.Equal(got.Templates[1].Behind, nil)
	is.Equal(len(got.Bad), 2)

	s.market.fail(errors.New("gone"))
	got = must(s.client.Sources.Browse(ctx, "acme", svc.CatalogFilter{}))
	is.True(got.Stale)
}
