package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

var sourceRules = []rule{
	{"Source returns what CreateSource received", func(c *checker) {
		for _, source := range []svc.Source{
			newSource(sourceKey("server")),
			newSource(personalSource("alice", "personal")),
			{SourceKey: sourceKey("bare"), URL: "u", CreatedAt: at(0), UpdatedAt: at(999_999)},
		} {
			c.ok(c.CreateSource(c.ctx, source))
			c.same("source", c.source(source.SourceKey), source)
		}
	}},
	{`a source keeps a nil description and "" apart`, func(c *checker) {
		none, empty := newSource(sourceKey("none")), newSource(sourceKey("empty"))
		none.Description, empty.Description = nil, new("")
		for _, source := range []svc.Source{none, empty} {
			c.ok(c.CreateSource(c.ctx, source))
			c.same("source", c.source(source.SourceKey), source)
		}
		c.same("list", c.sources(svc.ScopeServer, "", 10), []svc.Source{empty, none})
	}},
	{"a source is found under exactly its own name, whatever its characters", func(c *checker) {
		for _, name := range odd {
			c.is("Source "+name, second(c.Source(c.ctx, sourceKey(name))), svc.ErrNotFound)
			c.ok(c.CreateSource(c.ctx, newSource(sourceKey(name))))
		}
		for _, name := range odd {
			c.same("source", c.source(sourceKey(name)), newSource(sourceKey(name)))
		}
	}},
	{"CreateSource answers ErrExists when the key is taken, " +
		"and leaves the row unchanged", func(c *checker) {
		first, second := newSource(sourceKey("acme")), newSource(sourceKey("acme"))
		second.URL, second.Description, second.SealedToken = "https://other.example", nil, nil
		second.SigningKey, second.Serial = []byte("other"), 0
		c.ok(c.CreateSource(c.ctx, first))
		c.is("CreateSource", c.CreateSource(c.ctx, second), svc.ErrExists)
		c.same("source", c.source(first.SourceKey), first)
	}},
	{"sources of different scopes or owners may have the same name", func(c *checker) {
		keys := []svc.SourceKey{
			sourceKey("acme"), personalSource("alice", "acme"), personalSource("bob", "acme"),
			personalSource("Alice", "acme"),
		}
		for i, key := range keys {
			source := newSource(key)
			source.CreatedAt = at(int64(i))
			c.ok(c.CreateSource(c.ctx, source))
		}
		for i, key := range keys {
			c.same("time", c.source(key).CreatedAt, at(int64(i)))
		}
	}},
	{"Source answers ErrNotFound when name, scope or owner differs", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(personalSource("alice", "acme"))))
		for _, key := range []svc.SourceKey{
			sourceKey("acme"), personalSource("bob", "acme"), personalSource("alice", "Acme"),
			personalSource("alice", "acme "),
			{Scope: svc.ScopeServer, Owner: "alice", Name: "acme"},
			{Scope: svc.ScopePersonal, Name: "acme"}, personalSource("alice", ""),
		} {
			c.is("Source "+show(key), second(c.Source(c.ctx, key)), svc.ErrNotFound)
		}
	}},
	{"Sources lists each source once, " +
		"in byte order of names, for every chunk size", func(c *checker) {
		for _, name := range scrambled(odd) {
			c.ok(c.CreateSource(c.ctx, newSource(sourceKey(name))))
		}
		for _, limit := range []int{1, 2, 7, len(odd), len(odd) + 1} {
			c.same("names", sourceNames(c.sources(svc.ScopeServer, "", limit)), odd)
		}
	}},
	{"Sources returns whole sources", func(c *checker) {
		bare := svc.Source{
			SourceKey: sourceKey("bare"), URL: "u", CreatedAt: at(0), UpdatedAt: at(1),
		}
		full := newSource(sourceKey("full"))
		c.ok(c.CreateSource(c.ctx, bare))
		c.ok(c.CreateSource(c.ctx, full))
		c.same("list", c.sources(svc.ScopeServer, "", 10), []svc.Source{bare, full})
	}},
	{"Sources lists only the page's scope and owner", func(c *checker) {
		for _, key := range []svc.SourceKey{
			sourceKey("s"), personalSource("alice", "a"), personalSource("bob", "b"),
			personalSource("Alice", "A"),
		} {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
		}
		c.same("the server's", sourceNames(c.sources(svc.ScopeServer, "", 10)), []string{"s"})
		c.same("alice's", sourceNames(c.sources(svc.ScopePersonal, "alice", 10)), []string{"a"})
		c.same("nobody's", sourceNames(c.sources(svc.ScopePersonal, "", 10)), []string{})
	}},
	{"Sources lists every source once, in order of scope, owner and name, when the page asks for " +
		"every one", func(c *checker) {
		keys := []svc.SourceKey{
			personalSource("Alice", "b"), personalSource("alice", "a"),
			personalSource("alice", "b"),
			personalSource("bob", "A"), personalSource("bob", "a"), sourceKey("a"), sourceKey("c"),
		}
		for _, key := range scrambled(keys) {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
		}
		for _, limit := range []int{1, 2, len(keys), len(keys) + 1} {
			list := wholePages(c, limit, func(last svc.Source) ([]svc.Source, error) {
				return c.Sources(c.ctx, svc.SourcePage{
					Scope: last.Scope, Owner: last.Owner, After: last.Name, Limit: limit,
					Every: true,
				})
			})
			keyOf := func(s svc.Source) svc.SourceKey { return s.SourceKey }
			c.same("keys", column(list, keyOf), keys)
			c.same("a source", list[0], newSource(keys[0]))
		}
	}},
	{"a deleted source cannot be found, listed or deleted again", func(c *checker) {
		key := sourceKey("acme")
		c.is("DeleteSource of an unknown", c.DeleteSource(c.ctx, key), svc.ErrNotFound)
		c.ok(c.CreateSource(c.ctx, newSource(key)))
		c.ok(c.DeleteSource(c.ctx, key))
		c.is("Source", second(c.Source(c.ctx, key)), svc.ErrNotFound)
		c.same("list", sourceNames(c.sources(svc.ScopeServer, "", 10)), []string{})
		c.is("second DeleteSource", c.DeleteSource(c.ctx, key), svc.ErrNotFound)
	}},
	{"DeleteSource removes only the source with that key", func(c *checker) {
		others := []svc.SourceKey{
			personalSource("alice", "acme"), sourceKey("Acme"), sourceKey("acme "),
			sourceKey("acme%"), sourceKey("a"),
		}
		for _, key := range append(others, sourceKey("acme")) {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
		}
		c.ok(c.DeleteSource(c.ctx, sourceKey("acme")))
		for _, key := range others {
			c.same("source", c.source(key), newSource(key))
		}
	}},
	{"the name of a deleted source can be used again, " +
		"and nothing of the old source is left", func(c *checker) {
		key := sourceKey("acme")
		c.ok(c.CreateSource(c.ctx, newSource(key)))
		c.ok(c.DeleteSource(c.ctx, key))
		again := svc.Source{
			SourceKey: key, URL: "https://new.example", CreatedAt: at(5), UpdatedAt: at(5),
		}
		c.ok(c.CreateSource(c.ctx, again))
		c.same("source", c.source(key), again)
	}},
	{"templates stay when the source that they were installed from is deleted", func(c *checker) {
		for i, source := range []svc.SourceKey{acme, sourceKey("acme")} {
			template := installed(fmt.Sprint(i), "tag")
			template.Origin.Source = source
			template.Scope, template.Owner = source.Scope, source.Owner
			c.ok(c.CreateSource(c.ctx, newSource(source)))
			c.ok(c.CreateTemplate(c.ctx, template))
			c.ok(c.DeleteSource(c.ctx, source))
			c.same("template", c.template(template.TemplateKey), template)
		}
	}},
	{"templates of others lose the URL of a personal source that is deleted, " +
		"and Changes reports them", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		var unbound []svc.Template
		want := []svc.Target{acme.Target()}
		for _, key := range []svc.TemplateKey{templateKey("t"), personalTemplate("bob", "u")} {
			t := under(key, installed(key.ID, "x"))
			c.ok(c.CreateTemplate(c.ctx, t))
			t.Origin.URL = ""
			unbound, want = append(unbound, t), append(want, key.Target())
		}
		others := c.othersThan(acme)
		c.installAt(templateKey("without a URL"), acme, "")
		since := c.generation()
		c.ok(c.DeleteSource(c.ctx, acme))
		for _, t := range unbound {
			c.same("template", c.template(t.TemplateKey), t)
		}
		for _, t := range others {
			c.same("another", c.template(t.TemplateKey), t)
		}
		changes := c.changes(since)
		c.same("generation", changes.Generation, since+1)
		c.sameTargets("DeleteSource", changes.Targets, want)
	}},
	{"templates keep the URL of a deleted source of the server", func(c *checker) {
		key := personalTemplate("alice", "t")
		c.installAt(key, sourceKey("acme"), "https://old.example")
		c.ok(c.CreateSource(c.ctx, newSource(sourceKey("acme"))))
		c.ok(c.DeleteSource(c.ctx, sourceKey("acme")))
		c.same("URL", c.template(key).Origin.URL, "https://old.example")
	}},
	{"of several concurrent CreateSource calls for one key, " +
		"one wins and the others get ErrExists", func(c *checker) {
		errs := race(func(i int) error {
			source := newSource(sourceKey("acme"))
			source.URL = strings.Repeat("u", i+1)
			return c.CreateSource(c.ctx, source)
		})
		c.oneWins(errs, svc.ErrExists)
		winner := slices.Index(errs, nil)
		c.same("the winner's URL", c.source(sourceKey("acme")).URL, strings.Repeat("u", winner+1))
	}},
	{"of several concurrent DeleteSource calls for one key, " +
		"one wins and the others get ErrNotFound", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(sourceKey("acme"))))
		c.oneWins(race(func(int) error {
			return c.DeleteSource(context.Background(), sourceKey("acme"))
		}), svc.ErrNotFound)
	}},
}

func (c *checker) source(key svc.SourceKey) svc.Source {
	return must(c.Source(c.ctx, key))
}

// sources reads all sources, in chunks of limit.
func (c *checker) sources(scope svc.Scope, owner string, limit int) []svc.Source {
	return wholePages(c, limit, func(last svc.Source) ([]svc.Source, error) {
		return c.Sources(c.ctx, svc.SourcePage{
			Scope: scope, Owner: owner, After: last.Name, Limit: limit,
		})
	})
}

func sourceNames(sources []svc.Source) []string {
	return column(sources, func(s svc.Source) string { return s.Name })
}

// scrambled returns the list in an order that is neither sorted nor reversed.
func scrambled[T any](list []T) []T {
	var out []T
	for start := range 7 {
		for i := start; i < len(list); i += 7 {
			out = append(out, list[i])
		}
	}
	return out
}

var changeSourceRules = []rule{
	{"ChangeSource passes to change what Source returns", func(c *checker) {
		for _, source := range []svc.Source{
			newSource(sourceKey("full")), newSource(personalSource("alice", "full")),
			{SourceKey: sourceKey("bare"), URL: "u", CreatedAt: at(0), UpdatedAt: at(999_999)},
		} {
			c.ok(c.CreateSource(c.ctx, source))
			c.ok(c.ChangeSource(c.ctx, source.SourceKey, func(handed *svc.Source) (bool, error) {
				c.same("source", *handed, source)
				return false, nil
			}))
			c.same("after no change", c.source(source.SourceKey), source)
		}
	}},
	{"ChangeSource writes description, URL, token, " +
		"serial and UpdatedAt, of only that source", func(c *checker) {
		others := []svc.SourceKey{
			personalSource("alice", "B"), personalSource("alice", "a"),
			personalSource("alice", "b "),
			personalSource("bob", "b"), personalSource("Alice", "b"), sourceKey("b"),
		}
		want := newSource(personalSource("alice", "b"))
		for _, key := range append(others, want.SourceKey) {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
		}
		for _, change := range []func(*svc.Source){
			func(s *svc.Source) { s.Description = new("") },
			func(s *svc.Source) { s.Description = nil },
			func(s *svc.Source) { s.Description = new("new") },
			func(s *svc.Source) { s.URL = "https://new.example/%20?a=\u00e9" },
			func(s *svc.Source) { s.UpdatedAt = at(123_456_789) },
			func(s *svc.Source) { s.Serial++ }, func(s *svc.Source) { s.Serial = 0 },
			func(s *svc.Source) { s.Serial = math.MaxInt64 },
			func(s *svc.Source) { s.SealedToken = []byte("\xff\x00new") },
			func(s *svc.Source) { s.SealedToken[0]++ },
			func(s *svc.Source) { s.SealedToken = nil },
			func(s *svc.Source) { s.SealedToken = []byte("again") },
		} {
			c.ok(c.ChangeSource(c.ctx, want.SourceKey, edit(change)))
			change(&want)
			c.same("changed source", c.source(want.SourceKey), want)
		}
		for _, key := range others {
			c.same("another", c.source(key), newSource(key))
		}
		c.same("list", c.sources(svc.ScopePersonal, "alice", 10), []svc.Source{
			newSource(others[0]), newSource(others[1]), want, newSource(others[2]),
		})
	}},
	{"ChangeSource does not write the key, the signing key or CreatedAt", func(c *checker) {
		signed, unsigned := newSource(sourceKey("signed")), newSource(sourceKey("unsigned"))
		unsigned.SigningKey = nil
		for _, source := range []*svc.Source{&signed, &unsigned} {
			c.ok(c.CreateSource(c.ctx, *source))
			for _, key := range [][]byte{nil, {}, []byte("new")} {
				c.ok(c.ChangeSource(c.ctx, source.SourceKey, edit(func(s *svc.Source) {
					s.SourceKey, s.CreatedAt = personalSource("alice", "other"), at(77)
					s.URL = "https://new.example"
					spoil(s.SigningKey)
					s.SigningKey = key
				})))
				source.URL = "https://new.example"
				c.same("source", c.source(source.SourceKey), *source)
			}
		}
		c.is("Source", second(c.Source(c.ctx, personalSource("alice", "other"))), svc.ErrNotFound)
		c.same("list", c.sources(svc.ScopeServer, "", 10), []svc.Source{signed, unsigned})
	}},
	{"ChangeSource writes nothing when change returns false, " +
		"even if it modified the source", func(c *checker) {
		c.unmoved(leave, nil)
	}},
	{"ChangeSource returns the error of change unwrapped and writes nothing", func(c *checker) {
		c.unmoved(refuse, errRefused)
		c.unmoved(missing, svc.ErrNotFound)
	}},
	{"ChangeSource writes nothing when change panics, " +
		"and the store stays usable", func(c *checker) {
		c.panics(func() {
			c.unmoved(func(*svc.Source) (bool, error) { panic(errRefused) }, nil)
		})
		c.same("source", c.source(sourceKey("acme")), newSource(sourceKey("acme")))
		c.ok(c.ChangeSource(c.ctx, sourceKey("acme"), move))
	}},
	{"ChangeSource answers ErrNotFound without calling change " +
		"when name, scope or owner differs", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(personalSource("alice", "acme"))))
		for _, key := range []svc.SourceKey{
			sourceKey("acme"), personalSource("bob", "acme"), personalSource("alice", "Acme"),
			personalSource("alice", "acme "),
			{Scope: svc.ScopeServer, Owner: "alice", Name: "acme"},
			{Scope: svc.ScopePersonal, Name: "acme"},
		} {
			c.is("ChangeSource", c.ChangeSource(c.ctx, key, func(*svc.Source) (bool, error) {
				c.fail("change was called for %s", show(key))
				return false, nil
			}), svc.ErrNotFound)
		}
	}},
	{"concurrent changes of one source are serialized: none is lost", func(c *checker) {
		const each = 5
		c.ok(c.CreateSource(c.ctx, newSource(sourceKey("acme"))))
		c.together(each, func(int, int) {
			c.ok(c.ChangeSource(c.ctx, sourceKey("acme"), edit(func(s *svc.Source) {
				s.SealedToken = append(s.SealedToken, '+')
			})))
		})
		want := newSource(sourceKey("acme"))
		want.SealedToken = append(want.SealedToken, strings.Repeat("+", racers*each)...)
		c.same("source", c.source(want.SourceKey), want)
	}},
	{"a source that is changed and deleted concurrently is gone", func(c *checker) {
		for range 10 {
			c.ok(c.CreateSource(c.ctx, newSource(sourceKey("acme"))))
			c.raceToDelete(
				func() error { return c.DeleteSource(c.ctx, sourceKey("acme")) },
				func(int) error { return c.ChangeSource(c.ctx, sourceKey("acme"), move) },
			)
			c.same("list", sourceNames(c.sources(svc.ScopeServer, "", 10)), []string{})
		}
	}},
}

// move is a change function that gives a source another URL.
var move = edit(func(source *svc.Source) {
	source.URL, source.UpdatedAt = "https://moved.example", at(9)
})

// unmoved expects that ChangeSource returns want and writes nothing when change returns as end
// does.
func (c *checker) unmoved(end func(*svc.Source) (bool, error), want error) {
	source := newSource(sourceKey("acme"))
	if err := c.CreateSource(c.ctx, source); err != nil {
		c.is("CreateSource", err, svc.ErrExists)
	}
	err := c.ChangeSource(c.ctx, source.SourceKey, func(s *svc.Source) (bool, error) {
		spoil(*s)
		s.URL, s.Serial, s.UpdatedAt = "https://spoiled.example", 77, at(77)
		return end(s)
	})
	if err != want {
		c.fail("ChangeSource returned %v, want exactly %v", err, want)
	}
	c.same("source", c.source(source.SourceKey), source)
	c.same("list", c.sources(svc.ScopeServer, "", 10), []svc.Source{source})
}

// othersThan creates templates that did not come from a personal source, or are its owner's own.
func (c *checker) othersThan(source svc.SourceKey) (others []svc.Template) {
	for i, from := range append(nearly(source), source) {
		t := installedFrom(fmt.Sprint("other ", i), from, "https://old.example")
		if from == source {
			t.Scope, t.Owner = source.Scope, source.Owner
		}
		c.ok(c.CreateTemplate(c.ctx, t))
		others = append(others, t)
	}
	return others
}
