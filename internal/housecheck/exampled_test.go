package housecheck_test

import (
	"go/ast"
	godoc "go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// exampled are the packages with examples of each name that a host uses.
var exampled = []string{"adminpage", "client", "httpapi"}

// TestEveryNameHasAnExample: each exported name of these packages is used in an example of its package, but
// for those that the list has a reason for.
func TestEveryNameHasAnExample(t *testing.T) {
	t.Chdir("../..")
	var without []string
	for _, dir := range exampled {
		files, err := filepath.Glob(filepath.Join(dir, "example*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		set, parsed := token.NewFileSet(), []*ast.File{}
		for _, name := range files {
			parsed = append(parsed, must(parser.ParseFile(set, name, nil, parser.ParseComments)))
		}
		without = append(without, unexampled(t, set, parsed, path.Join(ours, dir))...)
	}
	for _, problem := range unlisted(without, exceptions(t, "internal/housecheck/testdata/unexampled.txt")) {
		t.Errorf("testdata/unexampled.txt: %s (write an example with it, or a reason)", problem)
	}
}

func TestPlantedExample(t *testing.T) {
	t.Chdir("../..")
	is := is.New(t)
	set := token.NewFileSet()
	file := must(parser.ParseFile(set, "example_test.go", `package adminpage_test

import "github.com/extsvc/svc/adminpage"

func Example() { _ = adminpage.New(nil, adminpage.Options{Title: "x"}) }

func ExampleNewTenants() { helper() }

func helper() { _ = adminpage.NewTenants(nil, adminpage.Options{}).Mount }
`, parser.ParseComments))
	without := unexampled(t, set, []*ast.File{file}, ours+"/adminpage")
	for name, want := range map[string]bool{
		"adminpage.New": false, "adminpage.Options": false, "adminpage.Options.Title": false,
		"adminpage.NewTenants": true, "adminpage.Handler.Mount": true, "adminpage.Options.Secure": true,
	} {
		is.Equal(slices.Contains(without, name), want)
	}
}

// unexampled returns the exported names of a package that the examples in files do not use.
func unexampled(t *testing.T, set *token.FileSet, files []*ast.File, of string) (without []string) {
	from := compiled(t, set, files)
	pkg := must(from.Import(of))
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: from, Error: func(error) {}} // of names in other files
	_, _ = config.Check(of+"_test", set, files, info)
	used := map[types.Object]bool{}
	for _, example := range godoc.Examples(files...) {
		ast.Inspect(example.Code, func(n ast.Node) bool {
			if name, is := n.(*ast.Ident); is {
				used[info.Uses[name]] = true
			}
			return true
		})
	}
	all := exportsOf(pkg)
	with := map[string]bool{}
	for name, object := range all {
		if used[object] {
			with[name], with[path.Dir(name)] = true, true // a type is used with its members
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !with[name] {
			without = append(without, strings.ReplaceAll(name, "/", "."))
		}
	}
	return without
}

// exportsOf returns what a package exports, by "package/Name" and "package/Type/Member".
func exportsOf(pkg *types.Package) map[string]types.Object {
	all := map[string]types.Object{}
	add := func(object types.Object, parts ...string) {
		if object.Exported() {
			all[path.Join(append(parts, object.Name())...)] = object
		}
	}
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		add(object, pkg.Name())
		of, is := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !isType || !is || !object.Exported() {
			continue
		}
		for method := range of.Methods() {
			if !slices.Contains(spoken, method.Name()) {
				add(method, pkg.Name(), name)
			}
		}
		if fields, is := of.Underlying().(*types.Struct); is {
			for field := range fields.Fields() {
				if !field.Embedded() {
					add(field, pkg.Name(), name)
				}
			}
		}
	}
	return all
}

func compiled(t *testing.T, set *token.FileSet, files []*ast.File) types.Importer {
	imports := map[string]bool{}
	for _, file := range files {
		for _, spec := range file.Imports {
			imports[must(strconv.Unquote(spec.Path.Value))] = true
		}
	}
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f",
		"{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}, slices.Sorted(maps.Keys(imports))...)...)
	lines := must(list.Output())
	export := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		export[name] = file
	}
	return importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) { return os.Open(export[name]) })
}
