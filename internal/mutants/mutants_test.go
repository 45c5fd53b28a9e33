package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/longtest"
)

const source = `package p

const limit = 2 + 1

func Within(n int, strict bool) bool {
	if strict {
		n++
	}
	if n < 0 || n >= limit {
		return false
	}
	if n == 1 {
		return false
	}
	last = n - 1
	said = "ON SRC"
	return true
}

func Fails(err error) (bool, error) { return true, err }

var last int
var said string
`

// module makes a module with the source and a test of it.
func module(t *testing.T, test string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/p\n\ngo 1.26\n", "p.go": source,
		"p_test.go": "package p\n\nimport \"testing\"\n\n" +
			"func TestWithin(t *testing.T) {\n" + test + "\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
}

// Every place that a mutant can change is a site. Constants are none.
func TestSites(t *testing.T) {
	module(t, "")
	packages := must(list(t.Context(), ""))
	sites := must(packages[0].sites())
	var all []string
	for _, s := range sites {
		all = append(all, s.what)
	}
	is.New(t).Equal(strings.Join(all, "\n"), `without last = n - 1
without said = "ON SRC"
not strict
without n++
|| becomes && in n < 0 || n >= limit
< becomes <= in n < 0
>= becomes > in n >= limit
false becomes true
== becomes != in n == 1
false becomes true
- becomes + in n - 1
true becomes false`)
}

// A seed draws the same mutants every time, and no two at one place.
func TestDraw(t *testing.T) {
	is := is.New(t)
	module(t, "")
	packages := must(list(t.Context(), ""))
	sites := must(packages[0].sites())
	names := map[string]bool{}
	for _, s := range sites {
		names[s.name()] = true
	}
	is.Equal(len(names), len(sites))
	for seed := range uint64(20) {
		one := must(draw(packages, seed, 100))
		two := must(draw(packages, seed, 100))
		is.Equal(len(one), len(two))
		for i, s := range one {
			is.Equal(s.name(), two[i].name())
			for _, other := range one[:i] {
				is.True(!s.overlaps(other))
			}
		}
	}
}

// Tests that check everything kill all mutants, and tests that check nothing kill none.
func TestRun(t *testing.T) {
	longtest.Test(t, "a draw of mutants, which compiles programs")
	is := is.New(t)
	module(t, `	for n, within := range map[int]bool{-1: false, 0: true, 1: false, 2: true, 3: false} {
		if Within(n, false) != within || within && (last != n-1 || said != "ON SRC") || Within(n-1, true) != within {
			t.Fatal(n)
		}
	}`)
	is.NoErr(run(t.Context(), 1, 100, ""))
	module(t, "\tWithin(1, true)")
	err := run(t.Context(), 1, 100, "")
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "less than 95 % killed"))
	module(t, "\tt.Fatal()")
	err = run(t.Context(), 1, 100, "")
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "fail without a mutant: --- FAIL: TestWithin"))
	module(t, "\tvar all [][]byte\n\tfor len(all) < 100 {\n\t\tall = append(all, make([]byte, 1<<26))\n\t}")
	err = run(t.Context(), 1, 100, "")
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "out of memory"))
}

// Each line of the list of equivalents names a site that is still there. Some tests judge each package.
func TestEquivalentsExist(t *testing.T) {
	is := is.New(t)
	t.Chdir("../..")
	packages := must(list(t.Context(), ""))
	names := must(listed(equivalents))
	is.True(len(names) > 0)
	for _, p := range packages {
		sites := must(p.sites())
		for _, s := range sites {
			delete(names, s.name())
		}
		tests, _ := filepath.Glob(filepath.Join(p.dir, "*_test.go"))
		if len(sites) > 0 && tests == nil && judges[p.folder] == nil {
			t.Errorf("nothing judges %s", p.folder)
		}
	}
	is.Equal(names, map[string]bool{})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
