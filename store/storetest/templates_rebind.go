package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
)

var rebindRules = []rule{
	{"RebindTemplates writes the URL to all templates from the source, " +
		"of every scope and owner, and returns their keys sorted", func(c *checker) {
		keys := []svc.TemplateKey{
			personalTemplate("alice", "z"), personalTemplate("alice", "B"),
			personalTemplate("Alice", "c"), templateKey("C"),
		}
		for _, id := range odd {
			keys = append(keys, personalTemplate(id, id), templateKey("t"+id))
		}
		for _, key := range scrambled(keys) {
			c.installAt(key, acme, "https://old.example")
		}
		c.same("keys", c.rebind(acme, "https://new.example"), sortedKeys(keys))
		for _, key := range keys {
			c.same("URL of "+show(key), c.template(key).Origin.URL, "https://new.example")
		}
	}},
	{"RebindTemplates changes nothing else of a template: " +
		"base, times and versions stay", func(c *checker) {
		t := installed("t", "x", "x", "y")
		c.ok(c.CreateTemplate(c.ctx, t))
		c.raise("t", func(t *svc.Template) {
			t.Name, t.Origin.Revision = "a new name", "sha256:new"
		})
		t, versions := c.template(t.TemplateKey), c.versions("t", 10)
		for _, url := range []string{
			"https://new.example/%20?a=\u00e9", "", "https://new.example/",
		} {
			c.same("keys", c.rebind(acme, url), []svc.TemplateKey{t.TemplateKey})
			t.Origin.URL = url
			c.same("template", c.template(t.TemplateKey), t)
			c.same("list", c.templates(svc.TemplateQuery{Limit: 10}), []svc.Template{listed(t)})
			c.same("list by tag", c.templates(tagged("y")), []svc.Template{listed(t)})
			c.same("installations", c.installations(svc.ScopeServer, "", 10), []svc.Installation{
				installationOf(t),
			})
			c.same("versions", c.versions("t", 10), versions)
		}
	}},
	{"RebindTemplates does not change templates " +
		"from other sources or without a source", func(c *checker) {
		var others []svc.Template
		for i, source := range nearly(acme) {
			others = append(others, installedFrom(fmt.Sprint(i), source, "https://old.example"))
		}
		others = append(others, handMade("made by hand"))
		for _, t := range append(others, installedFrom("t", acme, "https://old.example")) {
			c.ok(c.CreateTemplate(c.ctx, t))
		}
		c.same("keys", c.rebind(acme, "https://new.example"), []svc.TemplateKey{templateKey("t")})
		for _, t := range others {
			c.same("another", c.template(t.TemplateKey), t)
		}
		none := c.rebind(sourceKey("unknown"), "https://new.example")
		c.same("keys of a source of nothing", none, []svc.TemplateKey{})
	}},
	{"RebindTemplates skips templates " +
		"that already have the URL, compared byte by byte", func(c *checker) {
		const url = "https://example.com/\u00e9"
		var keys []svc.TemplateKey
		for i, old := range []string{
			url, "", "https://example.com/e\u0301", "https://EXAMPLE.com/\u00e9", url + " ",
			url + "/", "https://example.com/%",
		} {
			key := templateKey(fmt.Sprint(i))
			c.installAt(key, acme, old)
			keys = append(keys, key)
		}
		c.same("keys", c.rebind(acme, url), keys[1:])
		c.installAt(templateKey("7"), acme, "")
		c.same("keys of the next one", c.rebind(acme, url), []svc.TemplateKey{templateKey("7")})
		c.installAt(templateKey("8"), acme, "")
		c.same("keys of one to no URL", c.rebind(acme, ""), append(keys, templateKey("7")))
	}},
	{"RebindTemplates writes nothing when all templates have the URL: " +
		"generation and changes stay the same", func(c *checker) {
		c.installAt(templateKey("at"), acme, "https://new.example")
		c.installAt(templateKey("nowhere"), sourceKey("other"), "")
		for _, call := range []struct {
			source svc.SourceKey
			url    string
		}{
			{acme, "https://new.example"}, {sourceKey("other"), ""},
			{sourceKey("unknown"), "https://new.example"}, {sourceKey("unknown"), ""},
		} {
			c.same("keys", c.rebind(call.source, call.url), []svc.TemplateKey{})
			c.same("generation", c.generation(), int64(2))
			c.same("changes", c.changes(2), svc.StoreChanges{Generation: 2})
		}
	}},
	{"RebindTemplates of many templates is one mutation, " +
		"and Changes has a target for each", func(c *checker) {
		const many = 100
		var keys []svc.TemplateKey
		var want []svc.Target
		for i := range many {
			key := personalTemplate(fmt.Sprint(i%7), fmt.Sprint(i))
			c.installAt(key, acme, "https://old.example")
			keys, want = append(keys, key), append(want, key.Target())
		}
		c.same("keys", c.rebind(acme, "https://new.example"), sortedKeys(keys))
		changes := c.changes(many)
		c.same("generation", changes.Generation, int64(many+1))
		c.sameTargets("RebindTemplates", changes.Targets, want)
	}},
	{"when templates are changed and re-bound concurrently, " +
		"no change is lost and all get the URL", func(c *checker) {
		c.installAt(templateKey("t"), acme, "https://0.example")
		var changes atomic.Int64
		var bound atomic.Bool
		c.together(1, func(i, _ int) error {
			if i == 0 {
				defer bound.Store(true)
				return c.rebindTimes(5)
			}
			for j := 0; j < 5 || !bound.Load(); j++ {
				if err := c.ChangeTemplate(c.ctx, templateKey("t"), countUp); err != nil {
					return err
				}
				changes.Add(1)
				time.Sleep(100 * time.Microsecond) // gives RebindTemplates its turn
			}
			return nil
		})
		t := c.template(templateKey("t"))
		c.same("number of changes", *t.Description, fmt.Sprint(changes.Load()))
		c.same("URL", t.Origin.URL, "https://5.example")
	}},
	{"of several concurrent RebindTemplates calls one is last: " +
		"all templates have its URL", func(c *checker) {
		for i := range 20 {
			c.installAt(templateKey(fmt.Sprint(i)), acme, "")
		}
		c.together(1, func(i, _ int) error {
			keys, err := c.RebindTemplates(c.ctx, acme, fmt.Sprint("https://", i, ".example"))
			if err == nil && len(keys) != 20 {
				return fmt.Errorf("it re-bound %d templates of 20", len(keys))
			}
			return err
		})
		urls := map[string]int{}
		for _, i := range c.installations(svc.ScopeServer, "", 100) {
			urls[i.Origin.URL]++
		}
		if len(urls) != 1 {
			c.fail("the templates' URLs are %v", urls)
		}
	}},
}

// installAt creates a template that was installed from source at url.
func (c *checker) installAt(key svc.TemplateKey, source svc.SourceKey, url string) {
	t := installedFrom(key.ID, source, url)
	t.TemplateKey = key
	c.ok(c.CreateTemplate(c.ctx, t))
}

func (c *checker) rebind(source svc.SourceKey, url string) []svc.TemplateKey {
	keys, err := c.RebindTemplates(c.ctx, source, url)
	c.ok(err)
	return keys
}

// rebindTimes re-binds the server's template "t" several times, each time to another URL.
func (c *checker) rebindTimes(times int) error {
	for i := range times {
		keys, err := c.RebindTemplates(c.ctx, acme, fmt.Sprint("https://", i+1, ".example"))
		if err == nil && !slices.Equal(keys, []svc.TemplateKey{templateKey("t")}) {
			err = fmt.Errorf("it re-bound %s", show(keys))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countUp is a change function that counts its calls in the template's description.
var countUp = edit(func(t *svc.Template) {
	n, _ := strconv.Atoi(*t.Description) // the first description is not a number
	t.Description = new(strconv.Itoa(n + 1))
})

func sortedKeys(keys []svc.TemplateKey) []svc.TemplateKey {
	return slices.SortedFunc(slices.Values(keys), svc.TemplateKey.Compare)
}
