package storetest

import (
	"math"
	"strings"

	"github.com/extsvc/svc"
)

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
			c.ok(c.ChangeSource(c.ctx, want.SourceKey, func(s *svc.Source) (bool, error) {
				change(s)
				return true, nil
			}))
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
				c.ok(c.ChangeSource(c.ctx, source.SourceKey, func(s *svc.Source) (bool, error) {
					s.SourceKey, s.CreatedAt = personalSource("alice", "other"), at(77)
					s.URL = "https://new.example"
					spoilBytes(s.SigningKey)
					s.SigningKey = key
					return true, nil
				}))
				source.URL = "https://new.example"
				c.same("source", c.source(source.SourceKey), *source)
			}
		}
		_, err := c.Source(c.ctx, personalSource("alice", "other"))
		c.is("Source", err, svc.ErrNotFound)
		c.same("list", c.sources(svc.ScopeServer, "", 10), []svc.Source{signed, unsigned})
	}},
	{"ChangeSource writes nothing when change returns false, " +
		"even if it modified the source", func(c *checker) {
		c.unmoved(func(*svc.Source) (bool, error) { return false, nil }, nil)
	}},
	{"ChangeSource returns the error of change unwrapped and writes nothing", func(c *checker) {
		c.unmoved(func(*svc.Source) (bool, error) { return true, errRefused }, errRefused)
		c.unmoved(func(*svc.Source) (bool, error) {
			return false, svc.ErrNotFound
		}, svc.ErrNotFound)
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
		for _, err := range race(func(int) error {
			for range each {
				err := c.ChangeSource(c.ctx, sourceKey("acme"), func(s *svc.Source) (bool, error) {
					s.SealedToken = append(s.SealedToken, '+')
					return true, nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}) {
			c.ok(err)
		}
		want := newSource(sourceKey("acme"))
		want.SealedToken = append(want.SealedToken, strings.Repeat("+", racers*each)...)
		c.same("source", c.source(want.SourceKey), want)
	}},
	{"a source that is changed and deleted concurrently is gone", func(c *checker) {
		for range 10 {
			c.ok(c.CreateSource(c.ctx, newSource(sourceKey("acme"))))
			errs := race(func(i int) error {
				if i == 0 {
					return c.DeleteSource(c.ctx, sourceKey("acme"))
				}
				return c.ChangeSource(c.ctx, sourceKey("acme"), move)
			})
			c.ok(errs[0])
			for _, err := range errs[1:] {
				if err != nil {
					c.is("ChangeSource", err, svc.ErrNotFound)
				}
			}
			c.same("list", sourceNames(c.sources(svc.ScopeServer, "", 10)), []string{})
		}
	}},
}

// move is a change function that gives a source another URL.
func move(source *svc.Source) (bool, error) {
	source.URL, source.UpdatedAt = "https://moved.example", at(9)
	return true, nil
}

// unmoved expects that ChangeSource returns want and writes nothing when change returns as end
// does.
func (c *checker) unmoved(end func(*svc.Source) (bool, error), want error) {
	source := newSource(sourceKey("acme"))
	if err := c.CreateSource(c.ctx, source); err != nil {
		c.is("CreateSource", err, svc.ErrExists)
	}
	err := c.ChangeSource(c.ctx, source.SourceKey, func(s *svc.Source) (bool, error) {
		spoilSource(s)
		s.URL, s.Serial, s.UpdatedAt = "https://spoiled.example", 77, at(77)
		return end(s)
	})
	if err != want {
		c.fail("ChangeSource returned %v, want exactly %v", err, want)
	}
	c.same("source", c.source(source.SourceKey), source)
	c.same("list", c.sources(svc.ScopeServer, "", 10), []svc.Source{source})
}
