package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

var versionRules = []rule{
	{"ChangeTemplate keeps the old template as a version exactly " +
		"when change raises Version", func(c *checker) {
		template, other := installed("t", "x", "y"), installed("u", "x")
		template.Version, other.Version = 1, 1
		c.ok(c.CreateTemplate(c.ctx, template))
		c.ok(c.CreateTemplate(c.ctx, other))
		c.same("versions of a new one", len(c.versions("t", 10)), 0)
		var want []svc.TemplateVersion
		for i, raised := range []bool{true, false, true, true} {
			was := versionOf(template)
			next := func(t *svc.Template) {
				if raised {
					t.Version++
				}
				t.Name, t.Description, t.UpdatedAt = fmt.Sprint("name ", i), nil, at(int64(100+i))
				if i == 2 {
					t.Origin = nil
				}
			}
			c.ok(c.ChangeTemplate(c.ctx, template.TemplateKey, edit(next)))
			if next(&template); raised {
				want = append([]svc.TemplateVersion{was}, want...)
			}
			c.same("versions", c.versions("t", 10), want)
			c.same("template", c.template(template.TemplateKey), template)
		}
		c.same("versions of another", len(c.versions("u", 10)), 0)
	}},
	{"versions are whole, digit for digit", func(c *checker) {
		bare := handMade("t")
		bare.Version, bare.Description, bare.Category = 7, nil, nil
		bare.Integrations, bare.Tags = nil, nil
		bare.Manifest = json.RawMessage(`{"version":"1","a":1.0,"b":1e400,"s":"` + "\u2028😀" + `"}`)
		c.ok(c.CreateTemplate(c.ctx, bare))
		c.raise("t", func(t *svc.Template) {
			t.Description, t.Category, t.Tags = new(""), new(""), []string{"b", "a", "b"}
		})
		full := c.template(bare.TemplateKey)
		c.raise("t", func(t *svc.Template) { t.Name = "" })
		c.same("versions", c.versions("t", 10), []svc.TemplateVersion{
			versionOf(full), versionOf(bare),
		})
	}},
	{"TemplateVersions lists each version below before once, " +
		"greatest first, for every chunk size", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, handMade("t")))
		for range 12 {
			c.raise("t", func(t *svc.Template) {
				t.Manifest = json.RawMessage(`{"version":"` + strings.Repeat("x", 100_000) + `"}`)
			})
		}
		want := []int64{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}
		for _, limit := range []int{1, 5, 12, 100} {
			c.same("numbers", numbers(c.versions("t", limit)), want)
		}
		for _, before := range []int64{12, 11, 1, 0} {
			chunk := must(c.TemplateVersions(c.ctx, templateKey("t"), before, 1))
			if before == 0 {
				c.same("numbers below 0", len(chunk), 0)
				continue
			}
			c.same(fmt.Sprint("numbers below ", before), numbers(chunk), []int64{before - 1})
		}
	}},
	{"only the newest limits.TemplateVersions versions are kept", func(c *checker) {
		template := handMade("t")
		template.Version = 1
		c.ok(c.CreateTemplate(c.ctx, template))
		for range limits.TemplateVersions + 5 {
			c.raise("t", func(t *svc.Template) { t.Name += "x" })
		}
		kept := numbers(c.versions("t", 100))
		c.same("number of versions", len(kept), limits.TemplateVersions)
		c.same("the newest", kept[0], int64(limits.TemplateVersions+5))
		c.same("the oldest", kept[len(kept)-1], int64(6))
	}},
	{"a change that fails or writes nothing adds no version", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, handMade("t")))
		raise := func(t *svc.Template) { t.Version, t.Name = t.Version+1, "spoiled" }
		c.ok(c.ChangeTemplate(c.ctx, templateKey("t"), func(t *svc.Template) (bool, error) {
			raise(t)
			return false, nil
		}))
		err := c.ChangeTemplate(c.ctx, templateKey("t"), func(t *svc.Template) (bool, error) {
			raise(t)
			return true, errRefused
		})
		c.is("ChangeTemplate", err, errRefused)
		c.same("versions", len(c.versions("t", 10)), 0)
		c.same("version", c.template(templateKey("t")).Version, int64(0))
	}},
	{"versions belong to one template and are deleted with it", func(c *checker) {
		keys := []svc.TemplateKey{
			templateKey("t"), templateKey("T"), personalTemplate("alice", "t"),
			personalTemplate("bob", "t"),
		}
		for i, key := range keys {
			template := handMade("t")
			template.TemplateKey, template.Name = key, fmt.Sprint(i)
			c.ok(c.CreateTemplate(c.ctx, template))
			c.raiseKey(key, func(t *svc.Template) { t.Name += " changed" })
		}
		for i, key := range keys {
			of := c.versionsOf(key, 10)
			c.same("number of versions", len(of), 1)
			c.same("name", of[0].Name, fmt.Sprint(i))
		}
		c.ok(c.DeleteTemplate(c.ctx, keys[0], nil))
		c.same("versions of a deleted one", len(c.versionsOf(keys[0], 10)), 0)
		c.ok(c.CreateTemplate(c.ctx, handMade("t")))
		c.same("versions of a recreated one", len(c.versionsOf(keys[0], 10)), 0)
		for _, key := range keys[1:] {
			c.same("versions of another", len(c.versionsOf(key, 10)), 1)
		}
		c.same("versions of an unknown", len(c.versions("unknown", 10)), 0)
	}},
	{"of several concurrent changes that raise Version, each leaves one version", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, handMade("t")))
		c.together(1, func(int, int) { c.raise("t", func(t *svc.Template) { t.Name += "x" }) })
		versions := c.versions("t", 100)
		c.same("number of versions", len(versions), min(racers, limits.TemplateVersions))
		for i, v := range versions[1:] {
			c.same("length of a name", len(v.Name), len(versions[i].Name)-1)
		}
	}},
	{"the store does not share memory with versions that it returned", func(c *checker) {
		template := installed("t", "x", "y")
		c.ok(c.CreateTemplate(c.ctx, template))
		c.raise("t", func(t *svc.Template) { t.Name = "new" })
		for range 2 {
			for _, version := range c.versions("t", 10) {
				c.same("version", version, versionOf(template))
				spoil(version)
			}
		}
	}},
}

// versionOf returns the version that a change keeps of a template.
func versionOf(t svc.Template) svc.TemplateVersion {
	v := svc.TemplateVersion{Number: t.Version, Content: t.Content, UpdatedAt: t.UpdatedAt}
	if t.Origin != nil {
		v.SourceRevision = t.Origin.Revision
	}
	return v
}

// raise changes a template of the server and raises its Version.
func (c *checker) raise(id string, change func(*svc.Template)) {
	c.raiseKey(templateKey(id), change)
}

func (c *checker) raiseKey(key svc.TemplateKey, change func(*svc.Template)) {
	c.ok(c.ChangeTemplate(c.ctx, key, edit(func(t *svc.Template) {
		change(t)
		t.Version++
	})))
}

// versions reads the versions of a template of the server to their end.
func (c *checker) versions(id string, limit int) []svc.TemplateVersion {
	return c.versionsOf(templateKey(id), limit)
}

func (c *checker) versionsOf(key svc.TemplateKey, limit int) []svc.TemplateVersion {
	before := int64(math.MaxInt64)
	return pages(c, limit, func(svc.TemplateVersion) ([]svc.TemplateVersion, error) {
		chunk, err := c.TemplateVersions(c.ctx, key, before, limit)
		if len(chunk) > 0 {
			before = chunk[len(chunk)-1].Number
		}
		return chunk, err
	})
}

func numbers(versions []svc.TemplateVersion) []int64 {
	return column(versions, func(v svc.TemplateVersion) int64 { return v.Number })
}
