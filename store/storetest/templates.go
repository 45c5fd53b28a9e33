package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

var templateRules = []rule{
	{"Template returns what CreateTemplate received, " +
		"for a template made by hand", func(c *checker) {
		bare := svc.Template{
			TemplateKey: templateKey("bare"),
			Content:     svc.Content{Name: "n", Manifest: json.RawMessage(`{"version":"1"}`)},
			InstalledAt: at(0), UpdatedAt: at(999_999),
		}
		for _, template := range []svc.Template{handMade("full", "a", "b"), bare} {
			c.ok(c.CreateTemplate(c.ctx, template))
			c.same("template", c.template(template.TemplateKey), template)
		}
	}},
	{"Template returns what CreateTemplate received, " +
		"for an installed template with origin and base", func(c *checker) {
		fromServer := installed("two")
		fromServer.Origin.Source = sourceKey("acme")
		for _, template := range []svc.Template{installed("one", "a"), fromServer} {
			c.ok(c.CreateTemplate(c.ctx, template))
			c.same("template", c.template(template.TemplateKey), template)
		}
	}},
	{`a template and its base keep nil and "" apart in description and category`, func(c *checker) {
		none, empty := installed("none"), installed("empty")
		none.Description, none.Category = nil, nil
		none.Origin.Base.Description, none.Origin.Base.Category = nil, nil
		empty.Description, empty.Category = new(""), new("")
		empty.Origin.Base.Description, empty.Origin.Base.Category = new(""), new("")
		for _, template := range []svc.Template{none, empty} {
			c.ok(c.CreateTemplate(c.ctx, template))
			c.same("template", c.template(template.TemplateKey), template)
		}
		c.same("list", c.templates(svc.TemplateQuery{Limit: 10}), []svc.Template{
			listed(empty), listed(none),
		})
	}},
	{"integrations and tags are kept as given, order and repeats included", func(c *checker) {
		labels := []string{
			"b", "a", "b", "", "B", "b ", `"`, `\`, "a,b", "[]", "<&>", "\u2028", "\U0001f600",
			"e\u0301", "\u00e9", "b",
		}
		template := installed("t", labels...)
		template.Integrations = slices.Clone(labels)
		template.Origin.Base.Tags = slices.Clone(labels)
		template.Origin.Base.Integrations = slices.Clone(labels)
		c.ok(c.CreateTemplate(c.ctx, template))
		c.same("template", c.template(template.TemplateKey), template)
		c.same("list", c.templates(svc.TemplateQuery{Limit: 10}), []svc.Template{listed(template)})
	}},
	{"a manifest is kept byte for byte in template and base, " +
		"digits and order of keys included", func(c *checker) {
		for i, manifest := range []string{
			`{"version":"1","n":[1,1.0,1e0,1E+2,-0,0.10,1e400,12345678901234567890,` +
				`0.1000000000000000055511151231257827]}`,
			`{"z":1,"a":2,"version":"1","m":{"b":null,"a":[]}}`,
			`{"version":"\u0031","s":"\u2028\/\"\\\ud83d\ude00 <>&",` +
				`"t":"` + "\u2028\U0001f600\u007f" + `"}`,
			`{"version":"1","big":"` + strings.Repeat("x", 1<<20) + `"}`,
			`{ "version" : "1" }`,
		} {
			template := installed(fmt.Sprint(i))
			template.Manifest = json.RawMessage(manifest)
			template.Origin.Base.Manifest = json.RawMessage(manifest)
			c.ok(c.CreateTemplate(c.ctx, template))
			read := c.template(template.TemplateKey)
			list := c.templates(svc.TemplateQuery{Limit: 10})
			if !bytes.Equal(read.Manifest, template.Manifest) ||
				!bytes.Equal(read.Origin.Base.Manifest, template.Manifest) ||
				!bytes.Equal(list[i].Manifest, template.Manifest) {
				c.fail("manifest %.80s came back as %.80s, in base as %.80s, in list as %.80s",
					manifest, read.Manifest, read.Origin.Base.Manifest, list[i].Manifest)
			}
		}
	}},
	{"a template is found under exactly its own id, whatever its characters", func(c *checker) {
		for _, id := range odd {
			c.is("Template "+id, second(c.Template(c.ctx, templateKey(id))), svc.ErrNotFound)
			c.ok(c.CreateTemplate(c.ctx, handMade(id, id)))
		}
		for _, id := range odd {
			c.same("template", c.template(templateKey(id)), handMade(id, id))
		}
	}},
	{"CreateTemplate answers ErrExists when the key is taken, " +
		"and leaves row, tags and base unchanged", func(c *checker) {
		first, second := installed("t", "first"), handMade("t", "second")
		second.Name, second.Category = "other", new("other")
		c.ok(c.CreateTemplate(c.ctx, first))
		c.is("CreateTemplate", c.CreateTemplate(c.ctx, second), svc.ErrExists)
		c.same("template", c.template(first.TemplateKey), first)
		c.same("tagged as before", templateIDs(c.templates(tagged("first"))), []string{"t"})
		c.same("tagged as refused", templateIDs(c.templates(tagged("second"))), []string{})
	}},
	{"templates of different scopes or owners may have the same id", func(c *checker) {
		keys := []svc.TemplateKey{
			templateKey("t"), personalTemplate("alice", "t"), personalTemplate("bob", "t"),
			personalTemplate("Alice", "t"),
		}
		for i, key := range keys {
			template := installed("t", fmt.Sprint(i))
			template.TemplateKey, template.Origin.Base.Name = key, fmt.Sprint(i)
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for i, key := range keys {
			template := c.template(key)
			c.same("tags", template.Tags, []string{fmt.Sprint(i)})
			c.same("base", template.Origin.Base.Name, fmt.Sprint(i))
		}
	}},
	{"Template answers ErrNotFound when id, scope or owner differs", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, under(personalTemplate("alice", "t"), handMade("t"))))
		for _, key := range []svc.TemplateKey{
			templateKey("t"), personalTemplate("bob", "t"), personalTemplate("alice", "T"),
			personalTemplate("alice", "t "),
			{Scope: svc.ScopeServer, Owner: "alice", ID: "t"}, {Scope: svc.ScopePersonal, ID: "t"},
			personalTemplate("alice", ""),
		} {
			c.is("Template "+show(key), second(c.Template(c.ctx, key)), svc.ErrNotFound)
		}
	}},
	{"DeleteTemplate passes to check what Template returns, " +
		"and deletes nothing when check fails", func(c *checker) {
		template := installed("t", "x", "y")
		c.ok(c.CreateTemplate(c.ctx, template))
		err := c.DeleteTemplate(c.ctx, template.TemplateKey, func(t svc.Template) error {
			c.same("shown", t, template)
			return errRefused
		})
		if err != errRefused {
			c.fail("DeleteTemplate returned %v, want exactly %v", err, errRefused)
		}
		c.same("after a refusal", c.template(template.TemplateKey), template)
		c.is("of an unknown", c.DeleteTemplate(c.ctx, templateKey("u"), func(svc.Template) error {
			c.fail("check was called for a template that does not exist")
			return nil
		}), svc.ErrNotFound)
		c.ok(c.DeleteTemplate(c.ctx, template.TemplateKey, func(svc.Template) error { return nil }))
		c.is("Template", second(c.Template(c.ctx, template.TemplateKey)), svc.ErrNotFound)
	}},
	{"DeleteTemplate deletes exactly what it passed to check: " +
		"no change happens in between", func(c *checker) {
		for range 10 {
			c.ok(c.CreateTemplate(c.ctx, handMade("t")))
			errs := race(func(i int) error {
				if i%2 == 0 {
					return c.ChangeTemplate(c.ctx, templateKey("t"), touch)
				}
				return c.DeleteTemplate(c.ctx, templateKey("t"), func(t svc.Template) error {
					if t.UpdatedAt.Equal(handMade("t").UpdatedAt) {
						return nil
					}
					return errRefused
				})
			})
			changed, deleted := 0, 0
			for i, err := range errs {
				switch {
				case err == nil && i%2 == 0:
					changed++
				case err == nil:
					deleted++
				case !errors.Is(err, errRefused):
					c.is("racing call", err, svc.ErrNotFound)
				}
			}
			if changed > 0 && deleted > 0 || changed+deleted == 0 || deleted > 1 {
				c.fail("%d changes and %d deletions of an unchanged template succeeded, "+
					"want one kind", changed, deleted)
			}
			if deleted == 0 {
				c.ok(c.DeleteTemplate(c.ctx, templateKey("t"), nil))
			}
		}
	}},
	{"a deleted template cannot be found, listed, changed or deleted again", func(c *checker) {
		template := installed("t", "tag")
		c.is("of an unknown", c.DeleteTemplate(c.ctx, template.TemplateKey, nil), svc.ErrNotFound)
		c.ok(c.CreateTemplate(c.ctx, template))
		c.ok(c.DeleteTemplate(c.ctx, template.TemplateKey, nil))
		c.is("Template", second(c.Template(c.ctx, template.TemplateKey)), svc.ErrNotFound)
		c.same("list", templateIDs(c.templates(svc.TemplateQuery{Limit: 10})), []string{})
		c.same("list by tag", templateIDs(c.templates(tagged("tag"))), []string{})
		c.is("change", c.ChangeTemplate(c.ctx, template.TemplateKey, touch), svc.ErrNotFound)
		c.is("second delete", c.DeleteTemplate(c.ctx, template.TemplateKey, nil), svc.ErrNotFound)
	}},
	{"DeleteTemplate removes only the template with that key", func(c *checker) {
		keys := []svc.TemplateKey{
			personalTemplate("alice", "t"), templateKey("T"), templateKey("t "), templateKey("t%"),
			templateKey("tt"), templateKey("t"),
		}
		for _, key := range keys {
			c.ok(c.CreateTemplate(c.ctx, under(key, installed(key.ID, "tag"))))
		}
		c.ok(c.DeleteTemplate(c.ctx, templateKey("t"), nil))
		for _, key := range keys[:len(keys)-1] {
			c.same("template", c.template(key), under(key, installed(key.ID, "tag")))
		}
		c.same("list by tag", templateIDs(c.templates(tagged("tag"))), []string{
			"T", "t ", "t%", "tt",
		})
	}},
	{"the id of a deleted template can be used again, and no tag, " +
		"base or origin of the old one is left", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, installed("t", "old")))
		c.ok(c.DeleteTemplate(c.ctx, templateKey("t"), nil))
		again := handMade("t", "new")
		c.ok(c.CreateTemplate(c.ctx, again))
		c.same("template", c.template(again.TemplateKey), again)
		c.same("list by the old tag", templateIDs(c.templates(tagged("old"))), []string{})
		c.ok(c.DeleteTemplate(c.ctx, templateKey("t"), nil))
		c.ok(c.CreateTemplate(c.ctx, installed("t", "newer")))
		c.same("template", c.template(again.TemplateKey), installed("t", "newer"))
	}},
	{"of several concurrent CreateTemplate calls for one key, " +
		"one wins and the others get ErrExists", func(c *checker) {
		errs := race(func(i int) error {
			return c.CreateTemplate(c.ctx, installed("t", fmt.Sprint(i)))
		})
		c.oneWins(errs, svc.ErrExists)
		winner := slices.Index(errs, nil)
		c.same("template", c.template(templateKey("t")), installed("t", fmt.Sprint(winner)))
	}},
	{"of several concurrent DeleteTemplate calls for one key, " +
		"one wins and the others get ErrNotFound", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, installed("t", "tag")))
		c.oneWins(race(func(int) error {
			return c.DeleteTemplate(c.ctx, templateKey("t"), nil)
		}), svc.ErrNotFound)
	}},
}

func (c *checker) template(key svc.TemplateKey) svc.Template {
	return must(c.Template(c.ctx, key))
}

// templates reads the server's templates, in chunks of query.Limit.
func (c *checker) templates(query svc.TemplateQuery) []svc.Template {
	return c.templatesOf(svc.TemplatePage{Scope: svc.ScopeServer, TemplateQuery: query})
}

// templatesOf reads all templates of page's scope and owner, in chunks of page.Limit.
func (c *checker) templatesOf(page svc.TemplatePage) []svc.Template {
	return pages(c, page.Limit, func(last svc.Template) ([]svc.Template, error) {
		page.AfterName, page.AfterID = last.Name, last.ID
		return c.Templates(c.ctx, page)
	})
}

func tagged(tag string) svc.TemplateQuery {
	return svc.TemplateQuery{Tag: tag, Limit: 10}
}

func categorized(category string) svc.TemplateQuery {
	return svc.TemplateQuery{Category: category, Limit: 10}
}

func templateIDs(templates []svc.Template) []string {
	return column(templates, func(t svc.Template) string { return t.ID })
}

// listed returns a template as Templates lists it.
func listed(template svc.Template) svc.Template {
	if template.Origin != nil {
		origin := *template.Origin
		origin.Base = svc.Content{}
		template.Origin = &origin
	}
	return template
}

// touch changes a template's UpdatedAt.
var touch = edit(func(template *svc.Template) { template.UpdatedAt = at(1_000_000) })
