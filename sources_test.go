package svc_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

func TestRegisterSource(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	made, err := h.Sources.Register(t.Context(), admin, svc.NewSource{
		URL: "https://github.com/acme/templates.git", Description: ptr(""), AuthToken: ptr(svc.Secret("hush")),
	})
	is.NoErr(err)
	is.Equal(made.SourceKey, svc.SourceKey{Scope: svc.ScopeServer, Name: "acme"})
	is.Equal(*made.Description, "")
	is.True(made.HasAuth())
	is.True(!strings.Contains(string(made.SealedToken), "hush"))
	is.Equal(made.CreatedAt, made.UpdatedAt)
	is.Equal(collect(t, h.Sources.List(t.Context(), admin)), []svc.Source{made})
	is.Equal(h.actions(), []string{"source.registered source/acme by admin"})

	_, err = h.Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com/acme"})
	wantCode(t, err, svc.CodeExists, "/alias")

	is.NoErr(h.Sources.Remove(t.Context(), admin, "acme"))
	is.Equal(h.actions(), []string{"source.removed source/acme by admin"})
	wantCode(t, h.Sources.Remove(t.Context(), admin, "acme"), svc.CodeNotFound, "")
	wantCode(t, h.Sources.Remove(t.Context(), admin, "a/b"), svc.CodeInvalid, "name")
}

func TestSourceNames(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	for url, want := range map[string]string{
		"https://github.com/acme/templates":   "acme",
		"https://example.com/one.git":         "one",
		"https://example.com//two/":           "two",
		"https://example.com/a%20b/templates": "a b",
	} {
		made, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: url})
		is.NoErr(err)
		is.Equal(made.Name, want)
	}
	made, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com", Alias: ptr("mine")})
	is.NoErr(err)
	is.Equal(made.Name, "mine")
}

func TestRegisterSourceRefuses(t *testing.T) {
	secret := func(s string) *svc.Secret { return ptr(svc.Secret(s)) }
	for _, c := range []struct {
		field string
		in    svc.NewSource
	}{
		{"/url", svc.NewSource{}},
		{"/url", svc.NewSource{URL: "https://example.com/\x00"}},
		{"/url", svc.NewSource{URL: "https://example.com/" + strings.Repeat("a", svc.MaxURLLength)}},
		{"/url", svc.NewSource{URL: "ftp://example.com/a"}},
		{"/alias", svc.NewSource{URL: "https://example.com/"}},
		{"/alias", svc.NewSource{URL: "https://example.com/.git"}},
		{"/alias", svc.NewSource{URL: "https://example.com/a%2Fb"}},
		{"/alias", svc.NewSource{URL: "https://example.com/%00"}},
		{"/alias", svc.NewSource{URL: "https://example.com/a", Alias: ptr("")}},
		{"/alias", svc.NewSource{URL: "https://example.com/a", Alias: ptr("..")}},
		{"/auth_token", svc.NewSource{URL: "https://example.com/a", AuthToken: secret("")}},
		{"/auth_token", svc.NewSource{URL: "https://example.com/a", AuthToken: secret("a\r\nb")}},
		{"/auth_token", svc.NewSource{URL: "https://example.com/a", AuthToken: secret(strings.Repeat("a", 4097))}},
		{"/description", svc.NewSource{URL: "https://example.com/a", Description: ptr("\xff")}},
	} {
		h := newHost(t)
		_, err := h.Sources.Register(t.Context(), admin, c.in)
		wantCode(t, err, svc.CodeInvalid, c.field)
		if len(collect(t, h.Sources.List(t.Context(), admin))) > 0 {
			t.Errorf("%s: something was written", c.field)
		}
	}
}

func TestSourceTokens(t *testing.T) {
	is := is.New(t)
	h := newHost(t)
	h.market.put("https://example.com/a", "x", svc.Content{Name: "X", Manifest: manifest(`{"version":"1"}`)})
	_, err := h.Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com/a", AuthToken: ptr(svc.Secret("hush"))})
	is.NoErr(err)
	install := svc.Install{TemplateID: "x", SourceName: "a"}
	_, err = h.Templates.Install(t.Context(), admin, install)
	is.NoErr(err)
	is.Equal(h.market.asked[0].Token, svc.Secret("hush"))

	with := func(key []byte) *host {
		return newHost(t, func(c *svc.Config) { c.Store, c.Sources.SealingKey = h.store, key })
	}
	_, err = with(nil).Templates.CheckUpdate(t.Context(), admin, "x")
	wantCode(t, err, svc.CodeInternal, "")
	_, err = with(make([]byte, 32)).Templates.CheckUpdate(t.Context(), admin, "x")
	wantCode(t, err, svc.CodeInternal, "")
	_, err = with(nil).Sources.Register(t.Context(), admin, svc.NewSource{URL: "https://example.com/b", AuthToken: ptr(svc.Secret("hush"))})
	wantCode(t, err, svc.CodeInvalid, "/auth_token")
}
