package main

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is a file of Markdown, and the page that is made of it.
type page struct {
	source  string // "docs/howto/mount.md"
	File    string // "docs/howto/mount.html"
	Title   string
	Content template.HTML

	text   []byte
	root   ast.Node
	linked []string // the files of the clone that it leads to or shows
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

// read reads a page, and points its links to the files of the site.
func read(clone fs.FS, source string) (*page, error) {
	src, err := fs.ReadFile(clone, source)
	if err != nil {
		return nil, err
	}
	p := &page{source: source, File: target(source), text: src}
	p.root = markdown.Parser().Parse(text.NewReader(src))
	p.nameHeadings()
	if p.Title == "" {
		return nil, fmt.Errorf("%s has no heading: a page needs one for its title", source)
	}
	if err := p.pointLinks(clone); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	var html bytes.Buffer
	if err := markdown.Renderer().Render(&html, src, p.root); err != nil {
		return nil, err
	}
	// Wide tables and lines of code scroll by themselves, also with the keyboard. Code is escaped,
	// so these tags are those of the renderer. An empty header is no header, and a box to tick is
	// one on paper.
	p.Content = template.HTML(strings.NewReplacer(
		"<table>", `<div class="scrolls" tabindex="0"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`, "<!-- raw HTML omitted -->\n", "",
		"<th></th>", "<td></td>", `<input disabled="" type="checkbox">`, "☐",
	).Replace(html.String()))
	return p, nil
}

// target returns where a file of the clone is in the site. A browser shows only some kinds of
// files, others become text.
func target(source string) string {
	dir, name := path.Split(source)
	switch ext := path.Ext(name); ext {
	case ".md":
		if name == "README.md" {
			return dir + "index.html"
		}
		return strings.TrimSuffix(source, ext) + ".html"
	case ".json", ".png", ".svg":
		return source
	}
	return source + ".txt"
}

// nameHeadings gives headings the anchors that they have on GitHub, and takes the
// title from the first.
func (p *page) nameHeadings() {
	seen := map[string]int{}
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() != ast.KindHeading {
			continue
		}
		title := p.plain(n)
		if p.Title == "" {
			p.Title = title
		}
		id := anchor(title)
		if seen[id]++; seen[id] > 1 {
			id = fmt.Sprintf("%s-%d", id, seen[id]-1)
		}
		n.SetAttributeString("id", []byte(id))
	}
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// pointLinks has relative links lead to files of the site, and puts diagrams into the page.
func (p *page) pointLinks(clone fs.FS) error {
	var diagrams []*ast.Image
	err := ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, err = p.point(n.Destination)
		case *ast.Image:
			if path.Ext(string(n.Destination)) == ".svg" {
				diagrams = append(diagrams, n)
			} else {
				n.Destination, err = p.point(n.Destination)
			}
		}
		return ast.WalkContinue, err
	})
	for _, image := range diagrams {
		svg, failed := fs.ReadFile(clone, path.Join(path.Dir(p.source), string(image.Destination)))
		if failed != nil {
			return failed
		}
		// A part of the page, its text can be selected and found.
		span := fmt.Appendf(nil, `<span class="diagram scrolls" tabindex="0">%s</span>`, svg)
		inline := ast.NewString(span)
		inline.SetCode(true) // written as it is
		image.Parent().ReplaceChild(image.Parent(), image, inline)
	}
	return err
}

func (p *page) point(destination []byte) ([]byte, error) {
	to, err := url.Parse(string(destination))
	if err != nil || to.IsAbs() || to.Path == "" {
		return destination, err
	}
	source := path.Join(path.Dir(p.source), to.Path)
	p.linked = append(p.linked, source)
	relative, err := filepath.Rel(path.Dir(p.File), target(source))
	to.Path = filepath.ToSlash(relative)
	return []byte(to.String()), err
}

// Up leads from the page to the root of the site: "", "../" and so on.
func (p *page) Up() string { return strings.Repeat("../", strings.Count(p.File, "/")) }

// plain returns the text of a part of a page, without marks, on one line.
func (p *page) plain(of ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(of, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(p.text))
			} else if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.FencedCodeBlock:
			if entering {
				b.Write(n.Lines().Value(p.text))
			}
		default:
			if !entering && n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}
