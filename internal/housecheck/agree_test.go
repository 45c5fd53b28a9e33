package housecheck_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/expect"
)

// rows returns what a pattern finds in a document, its groups joined by spaces.
func rows(t *testing.T, file, pattern string) (all []string) {
	text := must(os.ReadFile(file))
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.Join(found[1:], " "))
	}
	return all
}

func sameRows(t *testing.T, what string, have, want []string) {
	t.Helper()
	slices.Sort(have)
	slices.Sort(want)
	for _, row := range want {
		expect.Holds(t, slices.Contains(have, row), what, " has ", row)
	}
	for _, row := range have {
		expect.Holds(t, slices.Contains(want, row), "the code has ", row, ", as ", what, " has")
	}
	expect.Holds(t, len(have) == len(want) || t.Failed(), what, " has no row twice: ", have)
}

// docs/reference/routes.md lists all routes, and docs/reference/errors.md all codes with their statuses.
func TestDocumentsAgree(t *testing.T) {
	t.Chdir("../..")
	var routes, codes []string
	for _, r := range httpapi.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	sameRows(t, "docs/reference/routes.md", rows(t, "docs/reference/routes.md", "(?m)^\\| `(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`"), routes)
	for _, file := range []string{"errors.go", "httpapi/problem.go"} {
		for _, code := range rows(t, file, `[cC]ode[A-Z]\w+\s+(?:svc\.)?Code = "([a-z_]+)"`) {
			codes = append(codes, fmt.Sprint(code, " ", httpapi.Status(&svc.Error{Code: svc.Code(code)})))
		}
	}
	sameRows(t, "docs/reference/errors.md", rows(t, "docs/reference/errors.md", "(?m)^\\| `([a-z_]+)` \\| ([0-9]{3}) \\|"), codes)
}

// The folder that pages give to ./release is ignored: a release refuses what is not committed.
func TestReleaseFolderIsIgnored(t *testing.T) {
	t.Chdir("../..")
	ignored := strings.Fields(string(must(os.ReadFile(".gitignore"))))
	for _, page := range append(slices.Collect(maps.Keys(documentation(t))), "CONTRIBUTING.md", "examples/server/deploy/README.md") {
		for _, folder := range rows(t, page, `\./release v[0-9.]+\s+(\w+)`) {
			expect.Holds(t, slices.Contains(ignored, "/"+folder+"/"), page, ": ./release … ", folder, ", which .gitignore has")
		}
	}
}

// docs/reference/events.md names all actions of events, and all kinds of their targets.
func TestDocumentedEventsAgree(t *testing.T) {
	t.Chdir("../..")
	page := string(must(os.ReadFile("docs/reference/events.md")))
	names, _, _ := strings.Cut(string(must(os.ReadFile("event/event.go"))), "No event is about them.")
	all := regexp.MustCompile(`(?:Action|TargetKind) = "([a-z_.]+)"`).FindAllStringSubmatch(names, -1)
	if len(all) < 20 {
		t.Fatalf("only %d names are found", len(all))
	}
	for _, found := range all {
		expect.Holds(t, strings.Contains(page, "`"+found[1]+"`"), "docs/reference/events.md has ", found[1])
	}
}

// docs/reference/actions.md lists the operations of each action, as x-actions of the OpenAPI document does.
func TestDocumentedActionsAgree(t *testing.T) {
	t.Chdir("../..")
	var documented, want []string
	operations := regexp.MustCompile("((?:[A-Z]+ )+)`([^`]+)`")
	for _, row := range rows(t, "docs/reference/actions.md", "(?m)^\\| (`[a-z_]+:[a-z_:]+` \\|.*)$") {
		cells := strings.Split(row, "|")
		for _, found := range operations.FindAllStringSubmatch(cells[2], -1) {
			for _, method := range strings.Fields(found[1]) {
				documented = append(documented, strings.Trim(cells[0], " `")+" "+method+" "+found[2])
			}
		}
	}
	var document struct {
		Paths map[string]map[string]struct {
			Actions []string `json:"x-actions"`
		}
	}
	is.New(t).NoErr(json.Unmarshal(httpapi.OpenAPI("/"), &document))
	for path, methods := range document.Paths {
		for method, o := range methods {
			for _, action := range o.Actions {
				want = append(want, action+" "+strings.ToUpper(method)+" "+path)
			}
		}
	}
	sameRows(t, "docs/reference/actions.md", documented, want)
}

// configs are the structs that hosts fill in, by the directories of their packages.
var configs = map[string]string{
	".": "Config", "httpapi": "Options", "adminpage": "Options", "client": "Config", "marketplace": "Config", "store/sqlite": "Options",
	"store/postgres": "Options",
}

// options are the fields of a struct that hosts fill in, as a path each: of a struct within it those of that one, of a list of structs also
// theirs.
func options(structs map[string]*ast.StructType, path, name string) (all []string) {
	for _, field := range structs[name].Fields.List {
		for _, ident := range field.Names {
			if !ident.IsExported() {
				continue
			}
			at := path + "." + ident.Name
			of, _ := field.Type.(*ast.Ident)
			list, _ := field.Type.(*ast.ArrayType)
			if of != nil && structs[of.Name] != nil {
				all = append(all, options(structs, at, of.Name)...)
				continue
			}
			all = append(all, at)
			if list == nil {
				continue
			}
			if of, _ = list.Elt.(*ast.Ident); of != nil && structs[of.Name] != nil {
				pkg, _, _ := strings.Cut(path, ".")
				all = append(all, options(structs, pkg+"."+of.Name, of.Name)...)
			}
		}
	}
	return all
}

func optionsIn(t *testing.T, dir, name string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	structs, pkg := map[string]*ast.StructType{}, ""
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed := must(parser.ParseFile(token.NewFileSet(), file, nil, 0))
		pkg = parsed.Name.Name
		for node := range ast.Preorder(parsed) {
			if spec, is := node.(*ast.TypeSpec); is {
				if body, is := spec.Type.(*ast.StructType); is {
					structs[spec.Name.Name] = body
				}
			}
		}
	}
	return options(structs, pkg+"."+name, name)
}

// Each option has its row in a table of the documentation, and so has each flag of examples/server; whatever else is named there like one
// is one.
func TestDocumentedOptionsAgree(t *testing.T) {
	t.Chdir("../..")
	var all, listed []string
	for dir, name := range configs {
		all = append(all, optionsIn(t, dir, name)...)
	}
	all = append(all, optionsIn(t, "parameter", "Definition")...)
	for _, option := range optionsIn(t, ".", "TenantsConfig") {
		if !strings.HasPrefix(option, "svc.TenantsConfig.Config.") && !strings.HasPrefix(option, "svc.Pepper.") &&
			!strings.HasPrefix(option, "svc.KeyImport.") { // listed as those of svc.Config
			all = append(all, option)
		}
	}
	for file := range documentation(t) {
		listed = append(listed, rows(t, file, "(?m)^\\| `([a-z]+\\.[A-Z][\\w.]+)` \\|")...)
		for _, named := range rows(t, file, `\b((?:(?:svc|httpapi|adminpage|marketplace|client|sqlite|postgres)\.)?(?:Config|Options|Pepper|KeyImport))[.{]\s*([A-Z][\w.]*\w)`) {
			named = strings.ReplaceAll(named, " ", ".")
			if !slices.ContainsFunc(all, func(option string) bool { return strings.Contains("."+option+".", "."+named+".") }) {
				t.Errorf("%s names %s, which there is not", file, named)
			}
		}
	}
	sameRows(t, "the documentation", listed, all)
	var flags []string
	files, _ := filepath.Glob("examples/server/*.go")
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			flags = append(flags, rows(t, file, `flags\.[A-Z]\w+\((?:[^,"]+, )?"([a-z-]+)"`)...)
		}
	}
	slices.Sort(flags)
	sameRows(t, "docs/reference/configuration.md", rows(t, "docs/reference/configuration.md", "(?m)^\\| `-([a-z-]+)` \\|"), slices.Compact(flags))
}
