package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// site is a place in a source that one mutant changes.
type site struct {
	of       *pkg
	file     string
	line     int
	text     string // the line, trimmed
	what     string // what the mutant changes, to read
	nth      int    // of the sites that would have the same name, from 1
	number   int    // of the mutant, from 1; its switch
	from, to int    // the bytes that are replaced
	with     with
}

// with returns the Go that replaces a site, for an expression that tells whether the mutant is on.
type with func(on string) string

// name tells a site from others after edits elsewhere in its file.
func (s *site) name() string {
	name := path.Join(s.of.folder, s.file) + ": " + s.text + ": " + s.what
	if s.nth > 1 {
		name += fmt.Sprintf(" (%d)", s.nth)
	}
	return name
}

func (s *site) overlaps(o *site) bool {
	return s.of == o.of && s.file == o.file && s.from < o.to && o.from < s.to
}

// replacement is Go that behaves as the source does, unless the mutant is on.
func (s *site) replacement() string {
	return s.with(fmt.Sprintf("(mutantOn == %d)", s.number))
}

// equivalents lists sites whose mutants no test can tell from the source, each line above its
// reason.
const equivalents = "internal/mutants/equivalent.txt"

// listed reads names of sites: every line but the reasons, which are indented. No file is no names.
func listed(file string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "\t") {
			names[strings.TrimSpace(line)] = true
		}
	}
	return names, nil
}

// sites returns all sites of a package, always in the same order.
func (p *pkg) sites() ([]*site, error) {
	var all []*site
	for _, name := range p.files {
		src, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		f := &finder{of: p, name: name, src: string(src), set: set}
		f.lines = strings.Split(f.src, "\n")
		for _, decl := range file.Decls {
			if function, is := decl.(*ast.FuncDecl); is && function.Body != nil {
				f.function(function.Type, function.Body)
			}
		}
		seen := map[string]int{}
		for _, s := range f.found {
			name := s.name()
			seen[name]++
			s.nth = seen[name]
		}
		all = append(all, f.found...)
	}
	return all, nil
}

// finder collects the sites of one file.
type finder struct {
	of    *pkg
	name  string
	src   string
	lines []string
	set   *token.FileSet
	fails bool // the function at hand returns an error last
	found []*site
}

// function collects the sites of one function. A truth value that is returned with an error is none:
// callers look at the error first.
func (f *finder) function(t *ast.FuncType, body *ast.BlockStmt) {
	defer func(outer bool) { f.fails = outer }(f.fails)
	f.fails = t.Results != nil && strings.HasSuffix(f.text(t.Results), "error)")
	ast.Inspect(body, f.see)
}

// add notes a site.
func (f *finder) add(n ast.Node, what string, with with) {
	start, end := f.set.Position(n.Pos()), f.set.Position(n.End())
	f.found = append(f.found, &site{
		of: f.of, file: f.name, line: start.Line, text: strings.TrimSpace(f.lines[start.Line-1]),
		what: what, from: start.Offset, to: end.Offset,
		with: with,
	})
}

func (f *finder) text(n ast.Node) string {
	return f.src[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset]
}

// see is for ast.Inspect.
func (f *finder) see(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.FuncLit:
		f.function(n.Type, n.Body)
		return false
	case *ast.ReturnStmt:
		if last := len(n.Results) - 1; f.fails && last > 0 && f.text(n.Results[last]) != "nil" {
			return true
		}
		for _, result := range n.Results {
			f.truth(result)
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
	return true
}

// swapped is the operator that a mutant has instead.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

func (f *finder) binary(n *ast.BinaryExpr) {
	other, is := swapped[n.Op]
	source, mutant := f.text(n), f.text(n.X)+" "+other.String()+" "+f.text(n.Y)
	if !is || strings.Contains(source, "\n") {
		return
	}
	what := fmt.Sprintf("%s becomes %s in %s", n.Op, other, source)
	if n.Op != token.ADD && n.Op != token.SUB {
		f.add(n, what, func(on string) string {
			return "(!" + on + " && (" + source + ") || " + on + " && (" + mutant + "))"
		})
		return
	}
	// Both sides are computed, so that only numbers without calls can be swapped.
	number, is := n.Y.(*ast.BasicLit)
	if is && number.Kind == token.INT && !strings.Contains(source, "(") {
		f.add(n, what, func(on string) string {
			return "mutantPick(" + on + ", " + source + ", " + mutant + ")"
		})
	}
}

// condition inverts what is no comparison.
func (f *finder) condition(n ast.Expr) {
	source := f.text(n)
	if _, is := n.(*ast.BinaryExpr); !is && !strings.Contains(source, "\n") {
		f.add(n, "not "+source, func(on string) string { return "((" + source + ") != " + on + ")" })
	}
}

func (f *finder) truth(n ast.Expr) {
	switch f.text(n) {
	case "true":
		f.add(n, "true becomes false", func(on string) string { return "(!" + on + ")" })
	case "false":
		f.add(n, "false becomes true", func(on string) string { return on })
	}
}

// statements removes calls and assignments.
func (f *finder) statements(list []ast.Stmt) {
	for _, n := range list {
		source := f.text(n)
		assigns, is := n.(*ast.AssignStmt)
		_, calls := n.(*ast.ExprStmt)
		calls = calls && !strings.HasPrefix(source, "panic(") // functions may end with it
		_, steps := n.(*ast.IncDecStmt)
		if calls || steps || is && assigns.Tok != token.DEFINE {
			first, _, _ := strings.Cut(source, "\n")
			f.add(n, "without "+first, func(on string) string { return "if !" + on + " { " + source + " }" })
		}
	}
}
