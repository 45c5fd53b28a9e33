package main

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"html/template"
	"io/fs"
	"path"
	"slices"

	"github.com/yuin/goldmark/ast"
)

//go:embed page.html style.css search.js
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "page.html"))

// kind is a part of the navigation: pages for one purpose.
type kind struct {
	Name  string
	Pages []*page
}

// build returns the files of the site by their names. It has the README, the pages of docs, and
// each file of the clone that they lead to.
func build(clone fs.FS) (map[string][]byte, error) {
	pages, files, err := readAll(clone)
	if err != nil {
		return nil, err
	}
	navigation := sorted(pages)
	for _, p := range pages {
		var html bytes.Buffer
		err := layout.Execute(&html, struct {
			*page
			Navigation []kind
		}{p, navigation})
		if err != nil {
			return nil, err
		}
		files[p.File] = html.Bytes()
	}
	if files["site/index.js"], err = index(pages); err != nil {
		return nil, err
	}
	for _, name := range []string{"style.css", "search.js"} {
		if files["site/"+name], err = assets.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// readAll reads the pages, and the other files that they lead to.
func readAll(clone fs.FS) (pages []*page, files map[string][]byte, err error) {
	files = map[string][]byte{}
	waiting := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := fs.Glob(clone, pattern)
		if err != nil {
			return nil, nil, err
		}
		waiting = append(waiting, found...)
	}
	seen := map[string]bool{}
	for ; len(waiting) > 0; waiting = waiting[1:] {
		source := waiting[0]
		if seen[source] {
			continue
		}
		seen[source] = true
		if path.Ext(source) != ".md" {
			if files[target(source)], err = fs.ReadFile(clone, source); err != nil {
				return nil, nil, err
			}
			continue
		}
		p, err := read(clone, source)
		if err != nil {
			return nil, nil, err
		}
		pages = append(pages, p)
		waiting = append(waiting, p.linked...)
	}
	return pages, files, nil
}

// sorted returns the navigation: pages by their kind, then by their title.
func sorted(pages []*page) []kind {
	kinds := []kind{
		{Name: "Start"}, {Name: "How to"}, {Name: "Reference"}, {Name: "Explanation"},
		{Name: "Project"},
	}
	of := map[string]int{"docs/howto": 1, "docs/reference": 2, "docs/explanation": 3}
	first := []string{
		"README.md", "docs/README.md", "docs/tutorial.md", "docs/faq.md", "docs/glossary.md",
	}
	for _, p := range pages {
		i, known := of[path.Dir(p.source)]
		if !known && !slices.Contains(first, p.source) {
			i = len(kinds) - 1
		}
		kinds[i].Pages = append(kinds[i].Pages, p)
	}
	for _, k := range kinds {
		slices.SortFunc(k.Pages, func(a, b *page) int {
			return cmp.Or(slices.Index(first, a.source)-slices.Index(first, b.source),
				cmp.Compare(a.Title, b.Title))
		})
	}
	return kinds
}

// entry is a section of a page, for search.
type entry struct {
	File    string `json:"file"`
	Anchor  string `json:"anchor"` // "" of the text before the second heading
	Title   string `json:"title"`
	Heading string `json:"heading"`
	Text    string `json:"text"`
}

// index returns a script with all sections. A script also loads from a disk, where a page may not
// read other files.
func index(pages []*page) ([]byte, error) {
	var all []entry
	for _, p := range pages {
		all = append(all, p.sections()...)
	}
	text, err := json.Marshal(all)
	return slices.Concat([]byte("const sections = "), text, []byte(";\n")), err
}

// sections splits a page at its headings.
func (p *page) sections() []entry {
	all := []entry{{File: p.File, Title: p.Title}}
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() == ast.KindHeading && n.PreviousSibling() != nil {
			id, _ := n.AttributeString("id")
			all = append(all, entry{p.File, string(id.([]byte)), p.Title, p.plain(n), ""})
		} else if n.Kind() != ast.KindHeading {
			last := &all[len(all)-1]
			last.Text += p.plain(n) + " "
		}
	}
	return all
}
