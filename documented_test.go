package svc_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imported are the packages that hosts import.
var imported = []string{".", "adminpage", "client", "httpapi", "marketplace", "svctest", "store/memstore", "store/sqlstore", "store/storetest", "store/sqlite", "store/postgres", "store/postgres/pgtest"}

// spoken are methods that say what they are by their name: those of interfaces of the standard library.
var spoken = []string{"Error", "Unwrap", "String", "GoString", "Format", "LogValue", "MarshalText"}

// Every exported name has a comment, and so has every package.
func TestEveryExportIsDocumented(t *testing.T) {
	for _, dir := range imported {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		said := false
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			said = said || file.Doc != nil
			for _, declaration := range file.Decls {
				for _, symbol := range undocumented(declaration) {
					t.Errorf("%s: %s has no comment", name, symbol)
				}
			}
		}
		if !said {
			t.Errorf("the package in %s has no comment", dir)
		}
	}
}

// undocumented are the exported names of a declaration that have no comment: methods of unexported types are not for hosts, and names of
// one group share its comment.
func undocumented(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		method := d.Recv != nil
		if d.Name.IsExported() && d.Doc == nil && !(method && (slices.Contains(spoken, d.Name.Name) || !ast.IsExported(receiver(d.Recv.List[0].Type)))) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, s.Names[0].Name)
				}
			}
		}
	}
	return names
}

func receiver(of ast.Expr) string {
	switch e := of.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestEveryNounHasAnExample: each noun of the Service has one of its methods, and each package that
// hosts import has one of its own. Those of pgtest are the tests of package postgres.
func TestEveryNounHasAnExample(t *testing.T) {
	for _, dir := range imported {
		found := examples(t, dir)
		if len(found) == 0 && dir != "store/postgres/pgtest" {
			t.Errorf("the package in %s has no example", dir)
		}
		for _, noun := range nouns {
			isOfNoun := func(name string) bool { return strings.HasPrefix(name, "Example"+noun+"_") }
			if dir == "." && !slices.ContainsFunc(found, isOfNoun) {
				t.Errorf("%s has no example", noun)
			}
		}
	}
}

// examples returns the names of the examples in the documentation of the package in a directory.
func examples(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			f, is := declaration.(*ast.FuncDecl)
			if is && strings.HasPrefix(f.Name.Name, "Example") && strings.HasSuffix(file.Name.Name, "_test") {
				all = append(all, f.Name.Name)
			}
		}
	}
	return all
}
