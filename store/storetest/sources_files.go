package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/limits"
)

var sourceFileRules = []rule{
	{"SourceFile returns what KeepSourceFile received, byte for byte", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		for i, data := range [][]byte{
			nil, {}, everyByte, []byte("\x00"), []byte("{\r\n \"a\" : 1.0}\n"),
			[]byte("\ufeff\u2028"), bytes.Repeat(everyByte, 4096), {},
		} {
			for _, path := range []string{"", "manifests/chat.json"} {
				kept := svc.SourceFile{Path: path, Data: data, KeptAt: at(int64(999_999 * i))}
				c.ok(c.KeepSourceFile(c.ctx, acme, kept))
				file := c.file(acme, path)
				if !bytes.Equal(file.Data, data) {
					c.fail(
						"%d bytes, %.80q, came back as %d, %.80q", len(data), data, len(file.Data),
						file.Data,
					)
				}
				c.same("path and time", []any{file.Path, file.KeptAt}, []any{
					kept.Path, kept.KeptAt,
				})
			}
		}
	}},
	{"KeepSourceFile replaces the file at its path, " +
		"even a newer one, and leaves other files", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		for _, path := range []string{"", "a", "b"} {
			c.keep(acme, path, "of old", at(5))
		}
		for i, data := range []string{"longer than it was", "s", "", "again"} {
			for _, path := range []string{"", "a"} {
				c.keep(acme, path, data, at(int64(3+i)))
				c.same("file", c.file(acme, path), sourceFile(path, data, at(int64(3+i))))
			}
		}
		c.same("another", c.file(acme, "b"), sourceFile("b", "of old", at(5)))
	}},
	{"a file is found under exactly its own path, whatever its characters", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		for _, path := range oddPaths {
			c.noFile(acme, path)
			c.keep(acme, path, "of "+path, at(1))
		}
		for _, path := range oddPaths {
			c.same("file", c.file(acme, path), sourceFile(path, "of "+path, at(1)))
		}
	}},
	{"a file belongs to one source: scope, " +
		"owner and name are compared byte by byte", func(c *checker) {
		sources := slices.Concat([]svc.SourceKey{acme}, nearly(acme))
		for _, key := range sources {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
		}
		for _, key := range sources {
			c.noFile(key, "")
			c.noFile(key, "a")
			c.keep(key, "", "catalogue of "+show(key), at(1))
			c.keep(key, "a", "file of "+show(key), at(2))
		}
		for _, key := range sources {
			c.same("catalogue", c.file(key, ""), sourceFile("", "catalogue of "+show(key), at(1)))
			c.same("file", c.file(key, "a"), sourceFile("a", "file of "+show(key), at(2)))
		}
	}},
	{"KeepSourceFile answers ErrNotFound for a source " +
		"that is not registered, and keeps nothing", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		for _, key := range nearly(acme) {
			c.is(
				"KeepSourceFile of "+show(key),
				c.KeepSourceFile(c.ctx, key, sourceFile("a", "data", at(1))), svc.ErrNotFound,
			)
			c.noFile(key, "a")
			c.noFile(acme, "a")
			c.ok(c.CreateSource(c.ctx, newSource(key)))
			c.noFile(key, "a")
			c.ok(c.DeleteSource(c.ctx, key))
		}
	}},
	{"deleting a source deletes its files: " +
		"a new source with the same name has none", func(c *checker) {
		sources := slices.Concat([]svc.SourceKey{acme}, nearly(acme))
		for _, key := range sources {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
			c.keep(key, "", "catalogue", at(1))
			c.keep(key, "a", "file", at(1))
		}
		c.ok(c.DeleteSource(c.ctx, acme))
		for range 2 {
			c.noFile(acme, "")
			c.noFile(acme, "a")
			if _, err := c.Source(c.ctx, acme); err != nil {
				c.ok(c.CreateSource(c.ctx, newSource(acme)))
			}
		}
		for _, key := range sources[1:] {
			c.same("catalogue of another", c.file(key, ""), sourceFile("", "catalogue", at(1)))
			c.same("file of another", c.file(key, "a"), sourceFile("a", "file", at(1)))
		}
	}},
	{"changing a source keeps its files", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		c.keep(acme, "", "catalogue", at(1))
		c.keep(acme, "a", "file", at(2))
		c.ok(c.ChangeSource(c.ctx, acme, edit(func(s *svc.Source) {
			s.URL, s.Description, s.SealedToken = "https://new.example", nil, nil
			s.Serial, s.UpdatedAt = 7, at(9)
		})))
		c.same("catalogue", c.file(acme, ""), sourceFile("", "catalogue", at(1)))
		c.same("file", c.file(acme, "a"), sourceFile("a", "file", at(2)))
	}},
	{"a source keeps its newest limits.SourceFiles files by KeptAt, " +
		"and always its catalogue", func(c *checker) {
		other := personalSource("bob", acme.Name)
		for _, key := range []svc.SourceKey{acme, other} {
			c.ok(c.CreateSource(c.ctx, newSource(key)))
			c.keep(key, "", "catalogue", at(1))
		}
		c.keep(other, "a", "older than all", at(0))
		// The oldest five have the same time. A deletion that comes too early takes them first.
		c.keepMany(0, limits.SourceFiles, func(i int) time.Time { return at(int64(100 + max(i, 4))) })
		c.same("as many as are kept", c.filesOf(limits.SourceFiles), upTo(limits.SourceFiles))

		c.keep(acme, "", "newer than all", at(9999))
		c.same("the oldest", c.filesOf(9), upTo(9))
		c.keep(acme, "0", "again", at(9000))
		c.same("the oldest", c.filesOf(9), upTo(9))
		c.keep(acme, "", "catalogue", at(2))
		c.keep(acme, "older than all", "", at(99))
		c.noFile(acme, "older than all")
		c.same("the oldest", c.filesOf(9), upTo(9))

		c.keepMany(limits.SourceFiles, limits.SourceFiles+3, func(i int) time.Time {
			return at(int64(8000 - i))
		})
		left := c.filesOf(limits.SourceFiles + 3)
		c.same("number of files", len(left), limits.SourceFiles)
		c.same("all but the oldest",
			slices.DeleteFunc(left, func(path string) bool { return slices.Contains(upTo(5)[1:], path) }),
			slices.Delete(upTo(limits.SourceFiles+3), 1, 5))
		c.same("catalogue", c.file(acme, ""), sourceFile("", "catalogue", at(2)))
		c.same("catalogue of another", c.file(other, ""), sourceFile("", "catalogue", at(1)))
		c.same("file of another", c.file(other, "a"), sourceFile("a", "older than all", at(0)))
	}},
	{"KeepSourceFile is not a mutation: generation and changes stay the same", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		for _, path := range []string{"", "a", "a", "b"} {
			c.keep(acme, path, "data", at(1))
			c.same("generation", c.generation(), int64(1))
			c.same("changes", c.changes(1), svc.StoreChanges{Generation: 1})
			c.same("source", c.source(acme), newSource(acme))
		}
	}},
	{"concurrent KeepSourceFile calls leave one whole file per path", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		c.together(1, func(i, _ int) {
			own := fmt.Sprint(i)
			c.keep(acme, "one", strings.Repeat(own, 100), at(int64(i)))
			c.keep(acme, own, "own", at(int64(i)))
		})
		one := c.file(acme, "one")
		c.same("file", one, sourceFile("one", strings.Repeat(
			fmt.Sprint(one.KeptAt.Sub(at(0)).Microseconds()), 100,
		), one.KeptAt))
		for i := range racers {
			own := fmt.Sprint(i)
			c.same("file", c.file(acme, own), sourceFile(own, "own", at(int64(i))))
		}
	}},
	{"when DeleteSource and KeepSourceFile run concurrently, " +
		"either comes first and no file stays", func(c *checker) {
		for range 10 {
			c.ok(c.CreateSource(c.ctx, newSource(acme)))
			c.raceToDelete(func() error { return c.DeleteSource(c.ctx, acme) }, func(i int) error {
				return c.KeepSourceFile(c.ctx, acme, sourceFile(fmt.Sprint(i), "data", at(1)))
			})
			c.ok(c.CreateSource(c.ctx, newSource(acme)))
			c.same("files of the new one", c.filesOf(racers), []string{})
			c.ok(c.DeleteSource(c.ctx, acme))
		}
	}},
	{"the store does not share memory with files " +
		"that a caller passed in or received", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		kept := sourceFile("a", "data", at(1))
		c.ok(c.KeepSourceFile(c.ctx, acme, kept))
		spoil(kept.Data)
		for range 2 {
			file := c.file(acme, "a")
			c.same("file", file, sourceFile("a", "data", at(1)))
			spoil(file.Data)
		}
	}},
}

// longFileRules are slow: -short skips them.
var longFileRules = []rule{
	{"of files with the same time, only as many are deleted as exceed the limit", func(c *checker) {
		c.ok(c.CreateSource(c.ctx, newSource(acme)))
		c.keepMany(0, limits.SourceFiles+2, func(int) time.Time { return at(1) })
		c.same("number of files", len(c.filesOf(limits.SourceFiles+2)), limits.SourceFiles)
	}},
}

// acme is the key of a personal source.
var acme = personalSource("alice", "acme")

// nearly returns keys that a careless store confuses with key, a personal one.
func nearly(key svc.SourceKey) []svc.SourceKey {
	return []svc.SourceKey{
		sourceKey(key.Name), personalSource("bob", key.Name),
		personalSource(strings.ToUpper(key.Owner), key.Name), personalSource("", key.Name),
		personalSource(key.Owner+" ", key.Name),
		personalSource(key.Owner, strings.ToUpper(key.Name)),
		personalSource(key.Owner, key.Name+" "),
		personalSource(key.Owner, "a%"), personalSource(key.Owner, key.Name[:1]),
		personalSource(key.Name, key.Owner),
		{Scope: svc.ScopeServer, Owner: key.Owner, Name: key.Name},
	}
}

var everyByte = func() []byte {
	list := make([]byte, 256)
	for i := range list {
		list[i] = byte(i)
	}
	return list
}()

// oddPaths are the odd names, and paths that resemble each other.
var oddPaths = slices.Concat(odd, []string{
	"", "a/b", "a/b/", "a//b", "/a/b", "A/b", "a/B", "./a", "a/../b", "a%2Fb", `a\b`,
	"templates.json", "/", ".", "..",
	noise(1, 1023, 'a', 26), noise(1, 1024, 'a', 26),
})

func sourceFile(path, data string, keptAt time.Time) svc.SourceFile {
	return svc.SourceFile{Path: path, Data: []byte(data), KeptAt: keptAt}
}

func (c *checker) keep(key svc.SourceKey, path, data string, keptAt time.Time) {
	c.ok(c.KeepSourceFile(c.ctx, key, sourceFile(path, data, keptAt)))
}

// keepMany keeps files concurrently. Their paths are the numbers from "from" to below "to".
func (c *checker) keepMany(from, to int, keptAt func(i int) time.Time) {
	c.together(1, func(racer, _ int) {
		for i := from + racer; i < to; i += racers {
			c.keep(acme, fmt.Sprint(i), "", keptAt(i))
		}
	})
}

// filesOf returns the paths among upTo(number) that have a file.
func (c *checker) filesOf(number int) []string {
	return slices.DeleteFunc(upTo(number), func(path string) bool {
		_, err := c.SourceFile(c.ctx, acme, path)
		if err != nil {
			c.is("SourceFile", err, svc.ErrNotFound)
		}
		return err != nil
	})
}

func upTo(number int) []string {
	list := make([]string, number)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return list
}

func (c *checker) file(key svc.SourceKey, path string) svc.SourceFile {
	return must(c.SourceFile(c.ctx, key, path))
}

func (c *checker) noFile(key svc.SourceKey, path string) {
	_, err := c.SourceFile(c.ctx, key, path)
	c.is(fmt.Sprintf("SourceFile %.80q of %s", path, show(key)), err, svc.ErrNotFound)
}
