package storetest

import (
	"reflect"
	"slices"

	"github.com/extsvc/svc"
)

var memoryRules = []rule{
	{"the store does not share memory with values that a caller passed in", func(c *checker) {
		source, template := newSource(sourceKey("s")), installed("t", "x", "y")
		key, value, b := newKey("k", alice, at(0)), []byte("value"), memorable()
		c.ok(c.CreateSource(c.ctx, source))
		c.ok(c.CreateTemplate(c.ctx, template))
		c.ok(c.CreateAPIKey(c.ctx, key))
		c.ok(second(c.KeepValue(c.ctx, "name", value)))
		c.apply(b)
		spoil(source, template, key, b, value)
		c.untouched()
	}},
	{"the store does not share memory with values that it returned", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(sourceKey("s"))))
		c.ok(c.CreateTemplate(c.ctx, installed("t", "x", "y")))
		c.ok(c.CreateAPIKey(c.ctx, newKey("k", alice, at(0))))
		value := must(c.KeepValue(c.ctx, "name", []byte("value")))
		c.apply(memorable())
		spoil(value, c.source(sourceKey("s")), c.template(templateKey("t")), c.key("k"),
			c.current(allOf(memorable())), c.allAccess(), c.sources(svc.ScopeServer, "", 10),
			c.templates(svc.TemplateQuery{Limit: 10}), c.keys(alice, 10))
		spoil(must(c.KeepValue(c.ctx, "name", nil)))
		for _, query := range []svc.AccessQuery{
			{Identity: alice}, {Identity: asAccount("bot")}, {KeyID: "k"},
		} {
			query.BankID = "bank"
			spoil(c.access(query))
		}
		c.untouched()
	}},
	{"the store does not share memory with the key that change received", func(c *checker) {
		key := newKey("k", alice, at(0))
		c.ok(c.CreateAPIKey(c.ctx, key))
		var kept *svc.APIKey
		c.ok(c.ChangeAPIKey(c.ctx, alice, "k", edit(func(k *svc.APIKey) { kept = k })))
		spoil(*kept)
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
			spoil(*kept)
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
			spoil(*kept)
			c.same("template", c.template(templateKey("t")), installed("t", "x", "y"))
		}
	}},
}

// spoil overwrites the texts and bytes that copies of the values share with them.
func spoil(values ...any) {
	for _, value := range values {
		spoilValue(reflect.ValueOf(value))
	}
}

func spoilValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			spoilValue(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoilValue(v.Index(i))
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			spoilValue(field)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("spoiled")
		}
	case reflect.Uint8:
		if v.CanSet() {
			v.SetUint('#')
		}
	}
}

// memorable returns the access rows of memoryRules.
func memorable() svc.Bundle {
	b := household()
	b.BankPolicies = []svc.BankPolicy{newBank("bank", `{}`)}
	b.Tests = []svc.AccessTest{newTest("t", true)}
	return b
}

// untouched expects the rows of memoryRules as they were written.
func (c *checker) untouched() {
	c.same("source", c.source(sourceKey("s")), newSource(sourceKey("s")))
	c.same("template", c.template(templateKey("t")), installed("t", "x", "y"))
	c.same("key", c.key("k"), newKey("k", alice, at(0)))
	c.same("kept value", must(c.KeepValue(c.ctx, "name", []byte("other"))), []byte("value"))
	b := memorable()
	for i := range b.Groups {
		slices.Sort(b.Groups[i].Members)
	}
	c.same("rows", sortedBundle(c.current(allOf(b))), sortedBundle(b))
}
