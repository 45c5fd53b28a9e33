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
		"of its own scope and owner, and returns their keys sorted", func(c *checker) {
		of := map[svc.SourceKey][]svc.TemplateKey{}
		for _, source := range []svc.SourceKey{acme, sourceKey("acme")} {
			for _, id := range odd {
				key := svc.TemplateKey{Scope: source.Scope, Owner: source.Owner, ID: id}
				of[source] = append(of[source], key)
			}
			for _, key := range scrambled(of[source]) {
				c.installAt(key, source, "https://old.example")
			}
		}
		for source, keys := range of {
			c.same("keys", c.rebind(source, "https://new.example"), sortedKeys(keys))
			for _, key := range keys {
				c.same("URL of "+show(key), c.template(key).Origin.URL, "https://new.example")
			}
		}
	}},
	{"RebindTemplates does not change templates of other scopes and owners, " +
		"also when they came from the source", func(c *checker) {
		fromServer := sourceKey("acme")
		for _, others := range []struct {
			source svc.SourceKey
			keys   []svc.TemplateKey
		}{
			{acme, []svc.TemplateKey{
				templateKey("t"), personalTemplate("bob", "t"), personalTemplate("Alice", "t"),
			}},
			{fromServer, []svc.TemplateKey{
				personalTemplate("alice", "s"), personalTemplate("bob", "s"),
			}},
		} {
			for _, key := range others.keys {
				c.installAt(key, others.source, "https://old.example")
			}
			rebound := c.rebind(others.source, "https://new.example")
			c.same("keys", rebound, []svc.TemplateKey{})
			for _, key := range others.keys {
				c.same("URL of "+show(key), c.template(key).Origin.URL, "https://old.example")
			}
		}
	}},
	{"RebindTemplates changes nothing else of a template: " +
		"base, times and versions stay", func(c *checker) {
		t := under(own("t"), installed("t", "x", "x", "y"))
		c.ok(c.CreateTemplate(c.ctx, t))
		c.raiseKey(own("t"), func(t *svc.Template) {
			t.Name, t.Origin.Revision = "a new name", "sha256:new"
		})
		t, versions := c.template(t.TemplateKey), c.versionsOf(own("t"), 10)
		for _, url := range []string{
			"https://new.example/%20?a=\u00e9", "", "https://new.example/",
		} {
			c.same("keys", c.rebind(acme, url), []svc.TemplateKey{t.TemplateKey})
			t.Origin.URL = url
			c.same("template", c.template(t.TemplateKey), t)
			for _, query := range []svc.TemplateQuery{{Limit: 10}, tagged("y")} {
				page := svc.TemplatePage{Scope: t.Scope, Owner: t.Owner, TemplateQuery: query}
				c.same("list", c.templatesOf(page), []svc.Template{listed(t)})
			}
			c.same("installations", c.installations(t.Scope, t.Owner, 10), []svc.Installation{
				installationOf(t),
			})
			c.same("versions", c.versionsOf(own("t"), 10), versions)
		}
	}},
	{"RebindTemplates does not change templates " +
		"from other sources or without a source", func(c *checker) {
		var others []svc.Template
		for i, source := range nearly(acme) {
			t := installedFrom(fmt.Sprint(i), source, "https://old.example")
			for _, at := range []svc.SourceKey{source, acme} {
				t.TemplateKey = svc.TemplateKey{Scope: at.Scope, Owner: at.Owner, ID: t.ID}
				others = append(others, t)
				t.ID += " of acme's owner"
			}
		}
		others = append(others, under(own("made by hand"), handMade("made by hand")))
		for _, t := range others {
			c.ok(c.CreateTemplate(c.ctx, t))
		}
		c.installAt(own("t"), acme, "https://old.example")
		c.same("keys", c.rebind(acme, "https://new.example"), []svc.TemplateKey{own("t")})
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
			key := own(fmt.Sprint(i))
			c.installAt(key, acme, old)
			keys = append(keys, key)
		}
		c.same("keys", c.rebind(acme, url), keys[1:])
		c.installAt(own("7"), acme, "")
		c.same("keys of the next one", c.rebind(acme, url), []svc.TemplateKey{own("7")})
		c.installAt(own("8"), acme, "")
		c.same("keys of one to no URL", c.rebind(acme, ""), append(keys, own("7")))
	}},
	{"RebindTemplates writes nothing when all templates have the URL: " +
		"generation and changes stay the same", func(c *checker) {
		c.installAt(own("at"), acme, "https://new.example")
		c.installAt(own("nowhere"), sourceKey("other"), "")
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
			key := own(fmt.Sprint(i))
			c.installAt(key, acme, "https://old.example")
			keys, want = append(keys, key), append(want, key.Target())
		}
		c.same("generation before", c.generation(), int64(many))
		c.same("keys", c.rebind(acme, "https://new.example"), sortedKeys(keys))
		changes := c.changes(many)
		c.same("generation", changes.Generation, int64(many+1))
		c.sameTargets("RebindTemplates", changes.Targets, want)
	}},
	{"when templates are changed and re-bound concurrently, " +
		"no change is lost and all get the URL", func(c *checker) {
		c.installAt(own("t"), acme, "https://0.example")
		var changes atomic.Int64
		var bound atomic.Bool
		c.together(1, func(i, _ int) {
			if i == 0 {
				defer bound.Store(true)
				for n := range 5 { // each time to another URL
					rebound := c.rebind(acme, fmt.Sprint("https://", n+1, ".example"))
					c.same("keys", rebound, []svc.TemplateKey{own("t")})
				}
				return
			}
			for j := 0; j < 5 || !bound.Load(); j++ {
				c.ok(c.ChangeTemplate(c.ctx, own("t"), countUp))
				changes.Add(1)
				time.Sleep(100 * time.Microsecond) // gives RebindTemplates its turn
			}
		})
		t := c.template(own("t"))
		c.same("number of changes", *t.Description, fmt.Sprint(changes.Load()))
		c.same("URL", t.Origin.URL, "https://5.example")
	}},
	{"of several concurrent RebindTemplates calls one is last: " +
		"all templates have its URL", func(c *checker) {
		for i := range 20 {
			c.installAt(own(fmt.Sprint(i)), acme, "")
		}
		c.together(1, func(i, _ int) {
			keys := c.rebind(acme, fmt.Sprint("https://", i, ".example"))
			c.same("number of keys", len(keys), 20)
		})
		urls := map[string]int{}
		for _, i := range c.installations(acme.Scope, acme.Owner, 100) {
			urls[i.Origin.URL]++
		}
		if len(urls) != 1 {
			c.fail("the templates' URLs are %v", urls)
		}
	}},
}

// own returns the key of a template of acme's owner.
func own(id string) svc.TemplateKey { return personalTemplate(acme.Owner, id) }

// installAt creates a template that was installed from source at url.
func (c *checker) installAt(key svc.TemplateKey, source svc.SourceKey, url string) {
	c.ok(c.CreateTemplate(c.ctx, under(key, installedFrom(key.ID, source, url))))
}

func (c *checker) rebind(source svc.SourceKey, url string) []svc.TemplateKey {
	return must(c.RebindTemplates(c.ctx, source, url))
}

// countUp is a change function that counts its calls in the template's description.
var countUp = edit(func(t *svc.Template) {
	n, _ := strconv.Atoi(*t.Description) // the first description is not a number
	t.Description = new(strconv.Itoa(n + 1))
})

func sortedKeys(keys []svc.TemplateKey) []svc.TemplateKey {
	return slices.SortedFunc(slices.Values(keys), svc.TemplateKey.Compare)
}
