package housecheck_test

import (
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
)

// snippet is Go that a page or a doc comment shows.
type snippet struct {
	at    string   // "docs/howto/mount.md:22"
	from  string   // the file that the line above names; "": any
	lines []string // without the indentation that all of them share
}

// code is every Go file of this repository by its path. go test and go vet compile all of them.
type code map[string][]string

// TestSnippetsCompile: all Go in pages is compiled. Either it stands, line by line, in the file that
// the line above the block names, or in any file when none is named. Or it has a package clause and
// builds alone. Only the indentation that all lines share may differ. Nothing may be left out.
func TestSnippetsCompile(t *testing.T) {
	longtest.Test(t, "that the Go of pages compiles")
	t.Chdir("../..")
	files, pages := sources(t)
	shown := 0
	for name, text := range pages {
		for _, s := range inPage(name, text) {
			if shown++; !files.compile(t, s) {
				t.Errorf("%s: this is not compiled (named file: %q):\n%s", s.at, s.from, strings.Join(s.lines, "\n"))
			}
		}
	}
	expect.Holds(t, shown >= 20, "snippets that were found in pages: ", shown)
	inComments := 0
	for name := range files {
		for _, s := range inDocs(t, name) {
			if inComments++; !files.have(s) {
				t.Errorf("%s: no Go file has these lines:\n%s", s.at, strings.Join(s.lines, "\n"))
			}
		}
	}
	expect.Holds(t, inComments >= 4, "snippets that were found in comments: ", inComments)
}

// What does not stand in a file is found, however it is written down.
func TestSnippetsThatDoNotCompile(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	t.Chdir("../..")
	files := code{
		"a/a.go": inLines("package a\n\nfunc f() {\n\tx := 1\n\t_ = x\n}\n"),
		"b.go":   inLines("package b\n\nvar y = 2\n"),
		"c.go":   inLines("package c\n\nfunc g() {\n\t// ...\n\tg()\n}\n"),
	}
	for page, good := range map[string]bool{
		"```go\nx := 1\n_ = x\n```\n":                             true,
		"```go\nfunc f() {\n\tx := 1\n```\n":                      true,
		"- a list:\n\n  ```go\n  x := 1\n  ```\n":                 true,
		"- a list:\n\n  ```go\n  func f() {\n  \tx := 1\n  ```\n": true,
		"```go\npackage p\n\nvar x = 3\n```\n":                    true,
		"<!-- a/a.go -->\n```go\nx := 1\n```\n":                   true,
		"```sh\nx := 3\n```\n":                                    true,
		"```go\npackage p\n\nvar x int = \"3\"\n```\n":            false,
		"```go\npackage p\n\nvar x = y\n```\n":                    false,
		"<!-- b.go -->\n```go\npackage p\n\nvar x = 3\n```\n":     false,
		"```go\n// ...\ng()\n```\n":                               false,
		"```go\nfunc f() {\n    x := 1\n```\n":                    false,
		"```go\nfunc f() {\nx := 1\n```\n":                        false,
		"```go\nx := 3\n```\n":                                    false,
		"```go\nx := 1\n\n_ = x\n```\n":                           false,
		"```go\nx := 1\nx := 1\n```\n":                            false,
		"```go\nx :=\n```\n":                                      false,
		"```go\nx := 1\n…\n_ = x\n```\n":                          false,
		"```go\n```\n":                                            false,
		"```golang\nx := 3\n```\n":                                false,
		"```Go\nx := 3\n```\n":                                    false,
		"~~~go\nx := 3\n~~~\n":                                    false,
		"````go\nx := 3\n````\n":                                  false,
		"``` go\nx := 3\n```\n":                                   false,
		"```go\nx := 3\n":                                         false,
		"  ```go\n  x := 3\n  ```\n":                              false,
		"<!-- b.go -->\n```go\nx := 1\n```\n":                     false,
		"<!-- none.go -->\n```go\nx := 1\n```\n":                  false,
		"```sh\nls\n```\n<!-- a/a.go -->\n```go\nvar y = 2\n```":  false,
	} {
		bad := slices.ContainsFunc(inPage("p.md", page), func(s snippet) bool { return !files.compile(t, s) })
		expect.Equal(t, page, !bad, good)
	}
	expect.Equal(t, "the code of a comment", len(inComment("a.go:1", "Run:\n\n\tx := 3\n")), 1)
	expect.Equal(t, "its commands", len(inComment("a.go:1", "Run:\n\n\tgo run ./x\n")), 0)
}

// sources reads all Go files, and all pages.
func sources(t *testing.T) (code, map[string]string) {
	t.Helper()
	files, pages := code{}, map[string]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata" || d.Name() == "node_modules" || name == "OUT") {
			return fs.SkipDir
		}
		if kind := path.Ext(name); !d.Type().IsRegular() || kind != ".go" && kind != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if path.Ext(name) == ".md" {
			pages[name] = string(text)
		} else {
			files[name] = inLines(string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, pages
}

func inLines(text string) []string {
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// flush are lines without the indentation that all of them share. Blank lines have none.
func flush(indented []string) []string {
	shared, found := "", false
	for _, line := range indented {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if indent == line {
			continue
		}
		if !found {
			shared, found = indent, true
		}
		for !strings.HasPrefix(indent, shared) {
			shared = shared[:len(shared)-1]
		}
	}
	all := make([]string, len(indented))
	for i, line := range indented {
		all[i] = strings.TrimRight(strings.TrimPrefix(line, shared), " \t")
	}
	return all
}

// elision is a line that stands for others.
var elision = regexp.MustCompile(`^[\s/*{}]*(\.\.\.|…)[\s/*{}]*$`)

// compile reports whether a snippet of a page is whole and is compiled: here or in a file.
func (c code) compile(t *testing.T, s snippet) bool {
	if slices.ContainsFunc(s.lines, elision.MatchString) {
		return false
	}
	isPackage := func(line string) bool { return strings.HasPrefix(line, "package ") }
	return c.have(s) || s.from == "" && slices.ContainsFunc(s.lines, isPackage) && builds(t, s.lines)
}

func builds(t *testing.T, lines []string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shown.go")
	must(0, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	vet := exec.CommandContext(t.Context(), "go", "vet", file)
	vet.Dir = "examples"
	said, err := vet.CombinedOutput()
	t.Logf("%s", said)
	return err == nil
}

func (c code) have(s snippet) bool {
	if s.from != "" {
		return holds(c[s.from], s.lines)
	}
	for _, lines := range c {
		if holds(lines, s.lines) {
			return true
		}
	}
	return false
}

// holds reports whether some lines stand in others, one behind the other.
func holds(all, some []string) bool {
	if len(some) == 0 {
		return false
	}
	for i := range len(all) - len(some) + 1 {
		if strings.HasSuffix(all[i], some[0]) && slices.Equal(flush(all[i:i+len(some)]), some) {
			return true
		}
	}
	return false
}

var (
	fence = regexp.MustCompile("^\\s*(```+|~~~+)\\s*(\\w*)")
	named = regexp.MustCompile(`^<!-- (\S+\.go) -->$`)
)

// inPage are the blocks of Go in a page of Markdown, one that does not end as well.
func inPage(name, text string) (all []snippet) {
	page := inLines(text)
	for i := 0; i < len(page); i++ {
		opened := fence.FindStringSubmatch(page[i])
		if opened == nil {
			continue
		}
		s := snippet{at: fmt.Sprintf("%s:%d", name, i+1)}
		if i > 0 {
			if file := named.FindStringSubmatch(strings.TrimSpace(page[i-1])); file != nil {
				s.from = file[1]
			}
		}
		begin := i + 1
		for i++; i < len(page) && strings.TrimSpace(page[i]) != opened[1]; i++ {
		}
		if language := strings.ToLower(opened[2]); language == "go" || language == "golang" {
			s.lines = flush(page[begin:min(i, len(page))])
			all = append(all, s)
		}
	}
	return all
}

func inDocs(t *testing.T, name string) (all []snippet) {
	set := token.NewFileSet()
	file := must(parser.ParseFile(set, filepath.FromSlash(name), nil, parser.ParseComments|parser.SkipObjectResolution))
	for _, group := range file.Comments {
		all = append(all, inComment(set.Position(group.Pos()).String(), group.Text())...)
	}
	return all
}

// isGo finds what commands, lists of files, drawings and JSON have not.
var isGo = regexp.MustCompile(`:=|\bfunc[ (]|\bsvc\.|^\s*(package|import|type|var|return) `)

// inComment are the blocks of code in a comment that are Go. The comment itself does not have these
// lines: its own begin with slashes.
func inComment(at, text string) (all []snippet) {
	for _, block := range new(comment.Parser).Parse(text).Content {
		if code, is := block.(*comment.Code); is && isGo.MatchString(code.Text) {
			all = append(all, snippet{at: at, lines: flush(inLines(code.Text))})
		}
	}
	return all
}

// Every server of an example or a page has all four timeouts: without them a slow client stays.
func TestServersHaveTimeouts(t *testing.T) {
	t.Chdir("../..")
	files, pages := sources(t)
	texts := maps.Clone(pages)
	for name, lines := range files {
		if strings.HasPrefix(name, "examples/") {
			texts[name] = strings.Join(lines, "\n")
		}
	}
	servers := 0
	for name, text := range texts {
		for _, without := range []string{"http.ListenAndServe(", "http.ListenAndServeTLS(", "http.Serve(", "http.ServeTLS("} {
			expect.Holds(t, !strings.Contains(text, without), name, ": ", without, ") has timeouts")
		}
		servers += strings.Count(text, "httpapi.Server(") // has them
		_, rest, found := strings.Cut(text, "http.Server{")
		for ; found; _, rest, found = strings.Cut(rest, "http.Server{") {
			servers++
			literal := regexp.MustCompile(`\n\s*}\n`).Split(rest, 2)[0]
			for _, timeout := range []string{"ReadHeaderTimeout:", "ReadTimeout:", "WriteTimeout:", "IdleTimeout:"} {
				expect.Holds(t, strings.Contains(literal, timeout), name, ": a server has ", timeout)
			}
		}
	}
	expect.Holds(t, servers >= 8, "servers that are found: ", servers)
}
