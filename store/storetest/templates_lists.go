package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
)

var templateListRules = []rule{
	{"Templates lists each template once, " +
		"in byte order of names, for every chunk size", func(c *checker) {
		for i, name := range scrambled(odd) {
			template := handMade(fmt.Sprint(i))
			template.Name = name
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for _, limit := range []int{1, 3, len(odd), len(odd) + 1} {
			list := c.templates(svc.TemplateQuery{Limit: limit})
			c.same("names", column(list, func(t svc.Template) string { return t.Name }), odd)
		}
	}},
	{"Templates lists templates with the same name once each, " +
		"in byte order of ids, across chunks", func(c *checker) {
		for _, id := range scrambled(odd) {
			template := handMade(id, "tag")
			template.Name = "one name"
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for _, limit := range []int{1, 3, len(odd), len(odd) + 1} {
			for _, filter := range []svc.TemplateQuery{
				{}, {Category: "category"}, {Tag: "tag"}, {Category: "category", Tag: "tag"},
			} {
				c.same("ids", templateIDs(c.templates(svc.TemplateQuery{
					Category: filter.Category, Tag: filter.Tag, Limit: limit,
				})), odd)
			}
		}
	}},
	{"Templates orders by name first: a later name with a smaller id is later", func(c *checker) {
		for _, row := range [][2]string{
			{"a", "9"}, {"a", "1"}, {"b", "0"}, {"B", "5"}, {"ab", "0"}, {"b", "8"},
		} {
			template := handMade(row[1]+row[0], "tag")
			template.Name = row[0]
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for limit := 1; limit < 8; limit++ {
			c.same("ids", templateIDs(c.templates(svc.TemplateQuery{Limit: limit})), []string{
				"5B", "1a", "9a", "0ab", "0b", "8b",
			})
		}
	}},
	{"Skip omits the first rows of a chunk", func(c *checker) {
		for i := range 6 {
			c.ok(c.CreateTemplate(c.ctx, handMade(fmt.Sprint(i), "tag")))
		}
		for _, filter := range []svc.TemplateQuery{
			{}, {Category: "category"}, {Tag: "tag"}, {Category: "category", Tag: "tag"},
		} {
			for skip, want := range [][]string{{"2"}, {"3"}, {"4"}, {"5"}, {}, {}} {
				page := svc.TemplatePage{Scope: svc.ScopeServer, TemplateQuery: filter}
				page.AfterName, page.AfterID = handMade("1").Name, "1"
				page.Skip, page.Limit = skip, 1
				c.same("ids", templateIDs(must(c.Templates(c.ctx, page))), want)
			}
		}
	}},
	{"Templates returns whole templates, except that Origin.Base is zero", func(c *checker) {
		a, b := handMade("a", "x", "y", "x"), installed("b", "x")
		c.ok(c.CreateTemplate(c.ctx, a))
		c.ok(c.CreateTemplate(c.ctx, b))
		want := []svc.Template{a, listed(b)}
		c.same("list", c.templates(svc.TemplateQuery{Limit: 10}), want)
		c.same("list by category", c.templates(categorized("category")), want)
		c.same("list by tag", c.templates(tagged("x")), want)
	}},
	{"large manifests may shorten a chunk, but never the list", func(c *checker) {
		var ids []string
		for i := range 12 {
			template := handMade(fmt.Sprintf("%02d", i), "tag")
			template.Manifest = json.RawMessage(
				`{"version":"1","big":"` + strings.Repeat("x", 100<<10) + `"}`,
			)
			c.ok(c.CreateTemplate(c.ctx, template))
			ids = append(ids, template.ID)
		}
		c.same("list", templateIDs(c.templates(svc.TemplateQuery{Limit: 50})), ids)
		list := c.templates(svc.TemplateQuery{Tag: "tag", Limit: 50})
		c.same("list by tag", templateIDs(list), ids)
	}},
	{"the category filter matches exactly the templates of that category", func(c *checker) {
		for i, category := range odd {
			template := handMade(fmt.Sprint(i))
			template.Category = new(category)
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for id, category := range map[string]*string{"null": nil, "empty": new("")} {
			template := handMade(id)
			template.Category = category
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for i, category := range odd {
			c.same(
				"of category "+category, templateIDs(c.templates(categorized(category))),
				[]string{fmt.Sprint(i)},
			)
		}
	}},
	{"the tag filter matches exactly the templates with an equal tag, each once", func(c *checker) {
		for i, tag := range odd {
			c.ok(c.CreateTemplate(
				c.ctx, handMade(fmt.Sprintf("%03d", i), "common", tag, tag, "common"),
			))
		}
		c.ok(c.CreateTemplate(c.ctx, handMade("untagged")))
		for i, tag := range odd {
			c.same("tagged "+tag, templateIDs(c.templates(tagged(tag))), []string{
				fmt.Sprintf("%03d", i),
			})
		}
		c.same("number of the common", len(c.templates(tagged("common"))), len(odd))
		for _, tag := range []string{
			"commo", "common ", "Common", "ommon", "common,a", `"common"`, "c%", "c_mmon",
		} {
			c.same("tagged "+tag, templateIDs(c.templates(tagged(tag))), []string{})
		}
	}},
	{"an empty tag is a normal tag, and an empty filter matches every template", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, handMade("a", "")))
		c.ok(c.CreateTemplate(c.ctx, handMade("b", "x")))
		c.same("list", templateIDs(c.templates(tagged(""))), []string{"a", "b"})
	}},
	{"both filters together match the templates that each of them matches", func(c *checker) {
		for i := range 24 {
			template := handMade(fmt.Sprintf("%02d", i), fmt.Sprint("t", i%2))
			template.Category = new(fmt.Sprint("c", i%3))
			c.ok(c.CreateTemplate(c.ctx, template))
		}
		for limit := 1; limit < 6; limit++ {
			query := svc.TemplateQuery{Category: "c1", Tag: "t0", Limit: limit}
			c.same("list", templateIDs(c.templates(query)), []string{"04", "10", "16", "22"})
		}
		query := svc.TemplateQuery{Category: "t0", Tag: "c1", Limit: 5}
		c.same("the other way round", templateIDs(c.templates(query)), []string{})
	}},
	{"Templates lists only the page's scope and owner, with and without filters", func(c *checker) {
		for i, key := range []svc.TemplateKey{
			templateKey("s"), personalTemplate("alice", "a"), personalTemplate("bob", "b"),
			personalTemplate("Alice", "A"),
		} {
			c.ok(c.CreateTemplate(c.ctx, under(key, handMade(fmt.Sprint(i), "tag"))))
		}
		for _, query := range []svc.TemplateQuery{
			{}, {Category: "category"}, {Tag: "tag"}, {Category: "category", Tag: "tag"},
		} {
			query.Limit = 10
			c.same("the server's", templateIDs(c.templates(query)), []string{"s"})
			for owner, want := range map[string][]string{"alice": {"a"}, "": {}} {
				page := svc.TemplatePage{
					Scope: svc.ScopePersonal, Owner: owner, TemplateQuery: query,
				}
				c.same("those of "+owner, templateIDs(c.templatesOf(page)), want)
			}
		}
	}},
	{"a template that exists throughout is listed once, " +
		"whatever is written between the chunks", func(c *checker) {
		want := []string{"1", "3", "5", "7"}
		for _, id := range append([]string{"0", "4"}, want...) {
			c.ok(c.CreateTemplate(c.ctx, handMade(id)))
		}
		page := svc.TemplatePage{Scope: svc.ScopeServer}
		page.Limit = 2
		seen := pages(c, 2, func(last svc.Template) ([]svc.Template, error) {
			page.AfterName, page.AfterID = last.Name, last.ID
			chunk, err := c.Templates(c.ctx, page)
			if last.ID == "" { // it was the first chunk
				c.ok(c.DeleteTemplate(c.ctx, templateKey("0"), nil))
				c.ok(c.DeleteTemplate(c.ctx, templateKey("4"), nil))
				c.ok(c.CreateTemplate(c.ctx, handMade("6")))
			}
			return chunk, err
		})
		times := map[string]int{}
		for _, template := range seen {
			times[template.ID]++
		}
		for _, id := range want {
			if times[id] != 1 {
				c.fail("template %s was listed %d times, in %v", id, times[id], templateIDs(seen))
			}
		}
	}},
}
