package storetest

import (
	"encoding/json"
	"slices"

	"github.com/extsvc/svc"
)

var memoryRules = []rule{
	{"the store does not share memory with values that a caller passed in", func(c *checker) {
		source, template := newSource(sourceKey("s")), installed("t", "x", "y")
		key := newKey("k", alice, at(0))
		value := []byte("value")
		c.ok(c.CreateSource(c.ctx, source))
		c.ok(c.CreateTemplate(c.ctx, template))
		c.ok(c.CreateAPIKey(c.ctx, key))
		_, err := c.KeepValue(c.ctx, "name", value)
		c.ok(err)
		b := household()
		b.BankPolicies = []svc.BankPolicy{{BankID: "bank", Document: json.RawMessage(`{}`)}}
		c.apply(b)
		spoil(&source, &template, &key, &b)
		value[0] = '#'
		c.untouched()
	}},
	{"the store does not share memory with values that it returned", func(c *checker) {
		b := household()
		b.BankPolicies = []svc.BankPolicy{{BankID: "bank", Document: json.RawMessage(`{}`)}}
		c.ok(c.CreateSource(c.ctx, newSource(sourceKey("s"))))
		c.ok(c.CreateTemplate(c.ctx, installed("t", "x", "y")))
		c.ok(c.CreateAPIKey(c.ctx, newKey("k", alice, at(0))))
		_, err := c.KeepValue(c.ctx, "name", []byte("value"))
		c.ok(err)
		c.apply(b)
		c.spoilReads(b)
		c.untouched()
	}},
	{"the store does not share memory with the key that change received", func(c *checker) {
		key := newKey("k", alice, at(0))
		c.ok(c.CreateAPIKey(c.ctx, key))
		var kept *svc.APIKey
		keep := func(k *svc.APIKey) (bool, error) {
			kept = k
			return true, nil
		}
		c.ok(c.ChangeAPIKey(c.ctx, alice, "k", keep))
		spoilKey(kept)
		c.same("changed key", c.key("k"), key)
	}},
	{"the store does not share memory with the source that change received", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(sourceKey("s"))))
		for _, write := range []bool{false, true} {
			var kept *svc.Source
			c.ok(c.ChangeSource(c.ctx, sourceKey("s"), func(s *svc.Source) (bool, error) {
				kept = s
				return write, nil
			}))
			spoilSource(kept)
			c.same("source", c.source(sourceKey("s")), newSource(sourceKey("s")))
		}
	}},
	{"the store does not share memory with the template that change received", func(c *checker) {
		c.ok(c.CreateTemplate(c.ctx, installed("t", "x", "y")))
		for _, write := range []bool{false, true} {
			var kept *svc.Template
			c.ok(c.ChangeTemplate(c.ctx, templateKey("t"), func(t *svc.Template) (bool, error) {
				kept = t
				return write, nil
			}))
			spoilTemplate(kept)
			c.same("template", c.template(templateKey("t")), installed("t", "x", "y"))
		}
	}},
}

// spoil overwrites all memory that the rows can share with copies of them.
func spoil(source *svc.Source, template *svc.Template, key *svc.APIKey, b *svc.Bundle) {
	spoilSource(source)
	spoilTemplate(template)
	spoilKey(key)
	spoilBundle(b)
}

func spoilText(s *string) {
	if s != nil {
		*s = "spoiled"
	}
}

func spoilBytes(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

func spoilSource(source *svc.Source) {
	spoilText(source.Description)
	spoilBytes(source.SealedToken)
	spoilBytes(source.SigningKey)
}

func spoilTemplate(template *svc.Template) {
	spoilContent(&template.Content)
	if template.Origin != nil {
		spoilContent(&template.Origin.Base)
		template.Origin.Revision = "spoiled"
	}
}

func spoilContent(content *svc.Content) {
	spoilText(content.Description)
	spoilText(content.Category)
	spoilBytes(content.Manifest)
	for _, list := range [][]string{content.Integrations, content.Tags} {
		for i := range list {
			list[i] = "spoiled"
		}
	}
}

func spoilKey(key *svc.APIKey) {
	spoilText(key.Description)
	spoilBytes(key.Hash)
	spoilBytes(key.Seal)
}

func spoilBundle(b *svc.Bundle) {
	for i := range b.Users {
		spoilUser(&b.Users[i])
	}
	for i := range b.Groups {
		for j := range b.Groups[i].Members {
			b.Groups[i].Members[j] = "spoiled"
		}
	}
	for i := range b.Policies {
		spoilBytes(b.Policies[i].Document)
	}
	for i := range b.BankPolicies {
		spoilBytes(b.BankPolicies[i].Document)
	}
}

func spoilUser(user *svc.User) {
	spoilText(user.Email)
	for i := range user.Channels {
		user.Channels[i] = svc.Channel{Provider: "spoiled"}
	}
}

// spoilReads spoils the values that every read of the rows returns.
func (c *checker) spoilReads(b svc.Bundle) {
	source, template, key := c.source(sourceKey("s")), c.template(templateKey("t")), c.key("k")
	current, rows := c.current(allOf(b)), c.allAccess()
	spoil(&source, &template, &key, &current)
	spoilBundle(&rows.Bundle)
	for _, source := range c.sources(svc.ScopeServer, "", 10) {
		spoilSource(&source)
	}
	for _, template := range c.templates(svc.TemplateQuery{Limit: 10}) {
		spoilTemplate(&template)
	}
	for _, key := range c.keys(alice, 10) {
		spoilKey(&key)
	}
	value, err := c.KeepValue(c.ctx, "name", nil)
	c.ok(err)
	spoilBytes(value)
	bot := svc.Identity{Kind: svc.KindServiceAccount, ID: "bot"}
	for _, query := range []svc.AccessQuery{{Identity: alice}, {Identity: bot}, {KeyID: "k"}} {
		query.BankID = "bank"
		snapshot := c.access(query)
		if snapshot.Key != nil {
			spoilKey(snapshot.Key)
		}
		spoilUser(snapshot.User)
		spoilBytes(snapshot.BankPolicy.Document)
		for _, grant := range snapshot.Grants {
			spoilBytes(grant.Document)
		}
		if snapshot.Scoping != nil {
			spoilBytes(snapshot.Scoping.Document)
		}
	}
}

// untouched expects the rows of memoryRules as they were written.
func (c *checker) untouched() {
	c.same("source", c.source(sourceKey("s")), newSource(sourceKey("s")))
	c.same("template", c.template(templateKey("t")), installed("t", "x", "y"))
	c.same("key", c.key("k"), newKey("k", alice, at(0)))
	value, err := c.KeepValue(c.ctx, "name", []byte("other"))
	c.ok(err)
	c.same("kept value", value, []byte("value"))
	b := household()
	b.BankPolicies = []svc.BankPolicy{{BankID: "bank", Document: json.RawMessage(`{}`)}}
	for i := range b.Groups {
		slices.Sort(b.Groups[i].Members)
	}
	c.same("rows", sortedBundle(c.current(allOf(b))), sortedBundle(b))
}
