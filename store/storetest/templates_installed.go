package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

var installationRules = []rule{
	{"Installations lists the templates that have an origin, " +
		"with all of the origin but its base", func(c *checker) {
		for _, t := range []svc.Template{
			installedFrom("c", sourceKey("acme"), ""), handMade("b", "x"), installed("a", "x"),
			installedFrom("d", personalSource("", "\u00e9"), "u"),
		} {
			c.ok(c.CreateTemplate(c.ctx, t))
		}
		c.same("installations", c.installations(svc.ScopeServer, "", 10), []svc.Installation{
			{ID: "a", Origin: svc.Origin{
				Source: acme, ID: "upstream a", URL: "https://example.com/acme",
				Revision: "sha256:a",
			}},
			{ID: "c", Origin: svc.Origin{
				Source: sourceKey("acme"), ID: "upstream c", Revision: "sha256:c",
			}},
			{ID: "d", Origin: svc.Origin{
				Source: personalSource("", "\u00e9"), ID: "upstream d", URL: "u",
				Revision: "sha256:d",
			}},
		})
	}},
	{"Installations lists each template once, " +
		"in byte order of ids, for every chunk size", func(c *checker) {
		for _, id := range scrambled(odd) {
			c.ok(c.CreateTemplate(c.ctx, installedFrom(id, sourceKey(id), id)))
			c.ok(c.CreateTemplate(c.ctx, handMade(id+"!hand made")))
		}
		for _, limit := range []int{1, 2, 7, len(odd), len(odd) + 1, 5000} {
			c.same("ids", installationIDs(c.installations(svc.ScopeServer, "", limit)), odd)
		}
		for i, id := range odd {
			chunk := must(c.Installations(c.ctx, svc.InstallationPage{
				Scope: svc.ScopeServer, After: id + "!", Limit: 1,
			}))
			after := slices.IndexFunc(odd, func(next string) bool { return next > id+"!" })
			if after < 0 {
				c.same("after the last", chunk, []svc.Installation{})
				continue
			}
			want := installedFrom(odd[after], sourceKey(odd[after]), odd[after])
			c.same(fmt.Sprint("after number ", i), chunk, []svc.Installation{installationOf(want)})
		}
	}},
	{"a chunk of Installations is full even when the templates are large", func(c *checker) {
		for i := range 8 {
			t := installed(fmt.Sprint(i))
			t.Manifest = json.RawMessage(`{"version":"` + strings.Repeat("x", 300_000) + `"}`)
			c.ok(c.CreateTemplate(c.ctx, t))
		}
		c.same("ids", installationIDs(c.installations(svc.ScopeServer, "", 7)), upTo(8))
	}},
	{"Installations lists only the page's scope and owner", func(c *checker) {
		keys := []svc.TemplateKey{
			templateKey("s"), personalTemplate("alice", "a"), personalTemplate("bob", "b"),
			personalTemplate("Alice", "A"),
		}
		for _, key := range keys {
			c.ok(c.CreateTemplate(c.ctx, under(key, installed(key.ID))))
		}
		for _, key := range keys {
			ids := installationIDs(c.installations(key.Scope, key.Owner, 10))
			c.same("ids", ids, []string{key.ID})
		}
		c.same("nobody's", len(c.installations(svc.ScopePersonal, "", 10)), 0)
		c.same("of a scope with an owner", len(c.installations(svc.ScopeServer, "alice", 10)), 0)
	}},
	{"Installations is current after templates are created, changed and deleted", func(c *checker) {
		a, b, made := installed("a"), installed("b"), handMade("made")
		list := func(want ...svc.Template) {
			installations := column(want, installationOf)
			c.same("installations", c.installations(svc.ScopeServer, "", 10), installations)
		}
		list()
		for _, t := range []svc.Template{b, made, a} {
			c.ok(c.CreateTemplate(c.ctx, t))
		}
		list(a, b)
		b.Origin = &svc.Origin{
			Source: sourceKey("other"), ID: "other", URL: "https://other.example",
			Revision: "sha256:other", Base: b.Content,
		}
		made.Origin = installed("made").Origin
		for _, t := range []svc.Template{b, made} {
			c.setOrigin(t.TemplateKey, t.Origin)
		}
		list(a, b, made)
		c.setOrigin(made.TemplateKey, nil)
		list(a, b)
		c.ok(c.DeleteTemplate(c.ctx, a.TemplateKey, nil))
		list(b)
		c.ok(c.CreateTemplate(c.ctx, handMade("a")))
		list(b)
	}},
	{"a template can be installed, " +
		"listed and re-bound when all its names have maximum length", func(c *checker) {
		id := func(seed uint64) string { return noise(seed, limits.IDLength, '\U00020000', 40_000) }
		url := func(seed uint64) string { return noise(seed, limits.URLLength, 'a', 26) }
		t := installedFrom("", personalSource(id(1), id(2)), url(1))
		t.TemplateKey, t.Origin.ID = personalTemplate(id(1), id(4)), id(5)
		t.Origin.Revision = "sha256:" + noise(1, 64, 'a', 26)
		c.ok(c.CreateTemplate(c.ctx, t))
		c.same("template", c.template(t.TemplateKey), t)
		t.Origin.URL = url(2)
		c.setOrigin(t.TemplateKey, t.Origin)
		of := column([]svc.Template{t}, installationOf)
		c.same("changed", c.installations(t.Scope, t.Owner, 10), of)
		t.Origin.URL, of[0].Origin.URL = url(3), url(3)
		rebound := c.rebind(t.Origin.Source, t.Origin.URL)
		c.same("keys of what was re-bound", rebound, []svc.TemplateKey{t.TemplateKey})
		c.same("re-bound", c.installations(t.Scope, t.Owner, 10), of)
		c.same("template", c.template(t.TemplateKey), t)
	}},
}

// installedFrom returns a template that was installed from source at url.
func installedFrom(id string, source svc.SourceKey, url string) svc.Template {
	t := installed(id)
	t.Origin.Source, t.Origin.URL = source, url
	return t
}

// installationOf returns a template as Installations lists it.
func installationOf(t svc.Template) svc.Installation {
	origin := *listed(t).Origin
	origin.Edited = false
	return svc.Installation{ID: t.ID, Origin: origin}
}

// installations reads all installations, in chunks of limit.
func (c *checker) installations(scope svc.Scope, owner string, limit int) []svc.Installation {
	return wholePages(c, limit, func(last svc.Installation) ([]svc.Installation, error) {
		return c.Installations(c.ctx, svc.InstallationPage{
			Scope: scope, Owner: owner, After: last.ID, Limit: limit,
		})
	})
}

func installationIDs(list []svc.Installation) []string {
	return column(list, func(i svc.Installation) string { return i.ID })
}

// setOrigin changes the origin of a template.
func (c *checker) setOrigin(key svc.TemplateKey, origin *svc.Origin) {
	c.ok(c.ChangeTemplate(c.ctx, key, edit(func(t *svc.Template) { t.Origin = origin })))
}
