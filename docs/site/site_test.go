package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/net/html"
)

var clone = os.DirFS("../..")

// reference is a link of a page, or a file that it loads.
type reference struct {
	to    string
	loads bool
}

// parsed is what the tests need of a page.
type parsed struct {
	ids        map[string]int
	references []reference
	navigation []string
}

func parse(t *testing.T, text []byte) parsed {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	p := parsed{ids: map[string]int{}}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			switch a.Key {
			case "id":
				p.ids[a.Val]++
			case "href", "src", "srcset", "data", "action", "poster":
				p.references = append(p.references, reference{a.Val, n.Data != "a"})
				if inNavigation(n) {
					p.navigation = append(p.navigation, a.Val)
				}
			}
		}
	}
	return p
}

func inNavigation(n *html.Node) bool {
	for above := range n.Ancestors() {
		if above.Data == "nav" {
			return true
		}
	}
	return false
}

// faults returns what is wrong with the links and ids of a site.
func faults(t *testing.T, files map[string][]byte) (found []string) {
	t.Helper()
	pages := map[string]parsed{}
	for name, text := range files {
		if path.Ext(name) == ".html" {
			pages[name] = parse(t, text)
		}
	}
	for name, p := range pages {
		for id, times := range p.ids {
			if times > 1 {
				found = append(found, fmt.Sprintf("%s: %d elements have the id %s", name, times, id))
			}
		}
		for _, r := range p.references {
			if problem := r.fault(name, files, pages); problem != "" {
				found = append(found, name+": "+r.to+": "+problem)
			}
		}
	}
	return found
}

func (r reference) fault(from string, files map[string][]byte, pages map[string]parsed) string {
	to, err := url.Parse(r.to)
	if err != nil {
		return err.Error()
	}
	switch {
	case to.Scheme == "data" || !r.loads && (to.Scheme == "https" || to.Scheme == "http" || to.Scheme == "mailto"):
		return ""
	case to.Scheme != "" || to.Host != "" || strings.HasPrefix(to.Path, "/"):
		return "is not relative"
	}
	file := path.Join(path.Dir(from), to.Path)
	if to.Path == "" {
		file = from
	}
	if files[file] == nil {
		return "there is no such file"
	}
	if to.Fragment != "" && pages[file].ids[to.Fragment] == 0 {
		return "there is no such heading"
	}
	return ""
}

func TestLinks(t *testing.T) {
	files, err := build(clone)
	is.New(t).NoErr(err)
	for _, fault := range faults(t, files) {
		t.Error(fault)
	}
	for _, name := range []string{"style.css", "search.js"} {
		for _, loads := range []string{"://", "url(", "@import", "fetch(", "import("} {
			if bytes.Contains(files["site/"+name], []byte(loads)) {
				t.Errorf("%s has %q: the site loads nothing but its own files", name, loads)
			}
		}
	}
}

func TestPlantedFaults(t *testing.T) {
	files := map[string][]byte{"a/b.html": []byte(`<h2 id="one"></h2>`), "site/style.css": {' '}}
	for link, want := range map[string]int{
		`<a href="a/b.html#one">`:                         0,
		`<a href="#two"></a><i id="two">`:                 0,
		`<a href="https://example.org/">`:                 0,
		`<link href="site/style.css">`:                    0,
		`<a href="a/c.html">`:                             1,
		`<a href="a/b.html#two">`:                         1,
		`<a href="/a/b.html">`:                            1,
		`<img src="https://example.org/x.png">`:           1,
		`<script src="//example.org/x.js">`:               1,
		`<object data="x.svg">`:                           1,
		`<svg><image href="https://example.org/x"></svg>`: 1,
		`<i id="x"></i><b id="x"></b>`:                    1,
	} {
		files["index.html"] = []byte(link)
		if found := faults(t, files); len(found) != want {
			t.Errorf("%s has the faults %q", link, found)
		}
	}
	is.New(t).Equal(faults(t, map[string][]byte{"a/b.html": []byte(`<a href="../index.html">`), "index.html": {' '}}), nil)
}

// The search index has every page, and every heading.
func TestIndex(t *testing.T) {
	is := is.New(t)
	files, err := build(clone)
	is.NoErr(err)
	text, _ := bytes.CutPrefix(files["site/index.js"], []byte("const sections = "))
	var entries []entry
	is.NoErr(json.Unmarshal(bytes.TrimRight(text, ";\n"), &entries))
	indexed := map[string]bool{}
	for _, e := range entries {
		indexed[e.File+"#"+e.Anchor] = true
		is.True(e.Title != "")
	}
	for name, text := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		is.True(indexed[name+"#"]) // the page
		root, err := html.Parse(bytes.NewReader(text))
		is.NoErr(err)
		for n := range root.Descendants() {
			for _, a := range n.Attr {
				if a.Key == "id" && (n.Data == "h2" || n.Data == "h3") && !indexed[name+"#"+a.Val] {
					t.Errorf("%s: the heading %s is not in the index", name, a.Val)
				}
			}
		}
	}
	has := func(file, words string) bool {
		return slices.ContainsFunc(entries, func(e entry) bool { return e.File == file && strings.Contains(e.Text, words) })
	}
	is.True(has("docs/glossary.html", "access users, groups, policies")) // a table, without its lines
	is.True(has("index.html", "go get github.com/extsvc/svc@"))          // code
}

// Each page leads to all pages, once.
func TestNavigation(t *testing.T) {
	is := is.New(t)
	files, err := build(clone)
	is.NoErr(err)
	var pages []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".html" {
			pages = append(pages, name)
		}
	}
	is.True(len(pages) > 50)
	for _, name := range pages {
		var leads []string
		for _, to := range parse(t, files[name]).navigation {
			leads = append(leads, path.Join(path.Dir(name), to))
		}
		slices.Sort(leads)
		is.Equal(leads, pages)
		is.Equal(bytes.Count(files[name], []byte(` aria-current="page"`)), 1)
		is.Equal(bytes.Count(files[name], []byte(`<details open`)), 1)
	}
}

func TestKinds(t *testing.T) {
	is := is.New(t)
	pages, _, err := readAll(clone)
	is.NoErr(err)
	kinds := sorted(pages)
	var first []string
	for _, p := range kinds[0].Pages {
		first = append(first, p.source)
	}
	is.Equal(first, []string{"README.md", "docs/README.md", "docs/tutorial.md", "docs/faq.md", "docs/glossary.md"})
	for i, folder := range []string{"docs/howto", "docs/reference", "docs/explanation"} {
		is.True(len(kinds[i+1].Pages) > 5)
		for _, p := range kinds[i+1].Pages {
			is.Equal(path.Dir(p.source), folder)
		}
	}
}

func TestDiagramsArePartOfThePage(t *testing.T) {
	is := is.New(t)
	files, err := build(clone)
	is.NoErr(err)
	text := string(files["docs/explanation/request.html"])
	is.True(strings.Contains(text, "<svg ") && strings.Contains(text, ">Authenticate</text>"))
	is.True(strings.Contains(text, "prefers-color-scheme:dark"))
}

func TestAnchors(t *testing.T) {
	is := is.New(t)
	for heading, want := range map[string]string{
		"When every path is 404":   "when-every-path-is-404",
		"GET /me, and snake_case":  "get-me-and-snake_case",
		"A – dash":                 "a--dash",
		"Über options: the others": "über-options-the-others",
	} {
		is.Equal(anchor(heading), want)
	}
}

func TestWritesAFolder(t *testing.T) {
	is := is.New(t)
	folder := t.TempDir()
	is.NoErr(write("../..", folder))
	_, err := os.Stat(path.Join(folder, "docs", "howto", "mount.html"))
	is.NoErr(err)
	is.True(write(t.TempDir(), folder) != nil) // a clone without a README
}
