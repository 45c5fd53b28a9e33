package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

var errRefused = errors.New("refused by the test")

var changeTemplateRules = []rule{
	{"ChangeTemplate passes to change what Template returns, base included", func(c *checker) {
		for _, template := range []svc.Template{installed("a", "x", "x"), handMade("b")} {
			c.ok(c.CreateTemplate(c.ctx, template))
			var handed svc.Template
			c.ok(c.ChangeTemplate(c.ctx, template.TemplateKey, func(t *svc.Template) (bool, error) {
				handed = *t
				return false, nil
			}))
			c.same("template", handed, template)
		}
	}},
	{"ChangeTemplate writes every field that change modified, and no others", func(c *checker) {
		for _, other := range []string{"a", "c"} {
			c.ok(c.CreateTemplate(c.ctx, installed(other, "x")))
		}
		template := installed("b", "x", "y")
		c.ok(c.CreateTemplate(c.ctx, template))
		for what, change := range changes() {
			c.ok(c.ChangeTemplate(c.ctx, template.TemplateKey, edit(change)))
			change(&template)
			c.same("after a change of "+what, c.template(template.TemplateKey), template)
		}
		for _, other := range []string{"a", "c"} {
			c.same("another", c.template(templateKey(other)), installed(other, "x"))
		}
	}},
	{"ChangeTemplate does not write the key or InstalledAt", func(c *checker) {
		template := installed("t", "x")
		c.ok(c.CreateTemplate(c.ctx, template))
		c.ok(c.ChangeTemplate(c.ctx, template.TemplateKey, edit(func(t *svc.Template) {
			t.TemplateKey, t.InstalledAt = personalTemplate("alice", "other"), at(77)
			t.Tags = []string{"z"}
		})))
		template.Tags = []string{"z"}
		c.same("template", c.template(template.TemplateKey), template)
		c.is("Template", second(c.Template(c.ctx, personalTemplate("alice", "other"))), svc.ErrNotFound)
		c.same("list by tag", templateIDs(c.templates(tagged("z"))), []string{"t"})
	}},
	{"ChangeTemplate writes nothing when change returns false, " +
		"even if it modified the template", func(c *checker) {
		c.unchanged(leave, nil)
	}},
	{"ChangeTemplate returns the error of change unwrapped and writes nothing", func(c *checker) {
		c.unchanged(refuse, errRefused)
		c.unchanged(missing, svc.ErrNotFound)
	}},
	{"ChangeTemplate writes nothing when change panics, " +
		"and the store stays usable", func(c *checker) {
		c.panics(func() {
			c.unchanged(func(t *svc.Template) (bool, error) { panic(errRefused) }, nil)
		})
		c.same("template", c.template(templateKey("t")), installed("t", "x"))
		c.same("list by tag", templateIDs(c.templates(tagged("x"))), []string{"t"})
		c.ok(c.ChangeTemplate(c.ctx, templateKey("t"), touch))
	}},
	{"ChangeTemplate answers ErrNotFound " +
		"without calling change for an unknown key", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, handMade("t")))
		for _, key := range []svc.TemplateKey{templateKey("T"), personalTemplate("alice", "t")} {
			c.is("ChangeTemplate", c.ChangeTemplate(c.ctx, key, func(*svc.Template) (bool, error) {
				c.fail("change was called for %v", key)
				return false, nil
			}), svc.ErrNotFound)
		}
	}},
	{"lists and filters use the new name, category and tags after a change", func(c *checker) {
		for _, id := range []string{"a", "b", "c"} {
			c.ok(c.CreateTemplate(c.ctx, installed(id, "old", "kept")))
		}
		c.ok(c.ChangeTemplate(c.ctx, templateKey("a"), edit(func(t *svc.Template) {
			t.Name, t.Category, t.Tags = "zzz", new("new"), []string{"new", "kept"}
		})))
		c.ok(c.ChangeTemplate(c.ctx, templateKey("b"), edit(func(t *svc.Template) {
			t.Category, t.Tags = nil, nil
		})))
		for limit := 1; limit < 4; limit++ {
			c.same("list", templateIDs(c.templates(svc.TemplateQuery{Limit: limit})), []string{
				"b", "c", "a",
			})
			query := svc.TemplateQuery{Tag: "kept", Limit: limit}
			c.same("kept tag", templateIDs(c.templates(query)), []string{"c", "a"})
		}
		c.same("old tag", templateIDs(c.templates(tagged("old"))), []string{"c"})
		c.same("new tag", templateIDs(c.templates(tagged("new"))), []string{"a"})
		c.same("old category", templateIDs(c.templates(categorized("category"))), []string{"c"})
		c.same("new category", templateIDs(c.templates(categorized("new"))), []string{"a"})
	}},
	{"concurrent changes of one template are serialized: none is lost", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, installed("t")))
		c.together(5, func(i, j int) {
			c.ok(c.ChangeTemplate(c.ctx, templateKey("t"), edit(func(t *svc.Template) {
				t.Tags = append(t.Tags, fmt.Sprintf("%d-%d", i, j))
			})))
		})
		tags := c.template(templateKey("t")).Tags
		slices.Sort(tags)
		c.same("number of tags", len(slices.Compact(tags)), racers*5)
	}},
	{"a template that is changed and deleted concurrently leaves no part behind", func(c *checker) {
		addTag := edit(func(t *svc.Template) { t.Tags = append(t.Tags, "y") })
		for range 10 {
			c.ok(c.CreateTemplate(c.ctx, installed("t", "x")))
			c.raceToDelete(
				func() error { return c.DeleteTemplate(c.ctx, templateKey("t"), nil) },
				func(int) error { return c.ChangeTemplate(c.ctx, templateKey("t"), addTag) },
			)
			c.same("tagged", templateIDs(c.templates(tagged("y"))), []string{})
		}
	}},
}

// changes returns one change function per field of a template, unordered. Each may run twice.
func changes() map[string]func(*svc.Template) {
	return map[string]func(*svc.Template){
		"the name":                func(t *svc.Template) { t.Name = "new name" },
		"the description":         func(t *svc.Template) { t.Description = new("new") },
		"the description to null": func(t *svc.Template) { t.Description = nil },
		"the category":            func(t *svc.Template) { t.Category = new("new") },
		"the category to null":    func(t *svc.Template) { t.Category = nil },
		"the integrations": func(t *svc.Template) {
			t.Integrations = []string{"new", "new"}
		},
		"the tags":         func(t *svc.Template) { t.Tags = []string{"new", "x", "new"} },
		"the tags to none": func(t *svc.Template) { t.Tags = []string{} },
		"the manifest": func(t *svc.Template) {
			t.Manifest = json.RawMessage(`{"version":"2","n":1.50}`)
		},
		"the time":   func(t *svc.Template) { t.UpdatedAt = at(123_456) },
		"the origin": func(t *svc.Template) { t.Origin = installed("other", "o").Origin },
		"the URL of the origin": func(t *svc.Template) {
			t.Origin = installed("moved").Origin
			t.Origin.URL = "https://moved.example"
		},
		"whether it is edited": func(t *svc.Template) {
			t.Origin = installed("edited").Origin
			t.Origin.Edited = false
		},
		"the origin to none": func(t *svc.Template) { t.Origin = nil },
		"the revision and base": func(t *svc.Template) {
			t.Origin = installed("again").Origin
			t.Origin.Revision = "sha256:new"
			t.Origin.Base = svc.Content{
				Name: "new base", Manifest: json.RawMessage(`{"version":"3"}`),
			}
		},
	}
}

// panics expects that do panics with errRefused.
func (c *checker) panics(do func()) {
	defer func() {
		if seen := recover(); seen != errRefused {
			c.fail("got the panic %v, want that of change", seen)
		}
	}()
	do()
}

// unchanged expects that ChangeTemplate returns want and writes nothing when change returns as end
// does.
func (c *checker) unchanged(end func(*svc.Template) (bool, error), want error) {
	template := installed("t", "x")
	if err := c.CreateTemplate(c.ctx, template); err != nil {
		c.is("CreateTemplate", err, svc.ErrExists)
	}
	err := c.ChangeTemplate(c.ctx, template.TemplateKey, func(t *svc.Template) (bool, error) {
		for _, change := range changes() {
			change(t)
		}
		t.Name, t.Tags = strings.Repeat("n", 10), []string{"changed"}
		return end(t)
	})
	if err != want {
		c.fail("ChangeTemplate returned %v, want exactly %v", err, want)
	}
	c.same("template", c.template(template.TemplateKey), template)
	c.same("list by tag", templateIDs(c.templates(tagged("changed"))), []string{})
}
