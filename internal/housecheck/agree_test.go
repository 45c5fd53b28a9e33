package housecheck_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

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

var (
	// variable is where a source names a variable of the environment: as a whole text, unless it is set
	// there, or where a script expands it.
	variable = regexp.MustCompile(`(Setenv\()?"(SVC_[A-Z0-9_]+)"(:)?|process\.env\.(SVC_[A-Z0-9_]+)|\$\{?(SVC_[A-Z0-9_]+)`)
	// onPage is a variable on a page. SVC_X_… stands for all that begin with SVC_X_.
	onPage = regexp.MustCompile(`SVC_[A-Z0-9_]+…?`)
)

// variables returns the variables that sources and scripts read.
func variables(t *testing.T, root fs.FS) map[string]string {
	t.Helper()
	read := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		isSource := slices.Contains([]string{"", ".go", ".js", ".py", ".sh", ".ts"}, path.Ext(name)) || strings.HasPrefix(name, ".ci/")
		if err != nil || !d.Type().IsRegular() || !isSource {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if !bytes.Contains(text, []byte("SVC_")) { // most texts, and quicker
			return err
		}
		for _, found := range variable.FindAllStringSubmatch(string(text), -1) {
			if found[1] == "" && found[3] == "" {
				read[found[2]+found[4]+found[5]] = name
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// faultsOfVariables returns the variables that no page names, and those of CONTRIBUTING.md that nothing reads.
func faultsOfVariables(read map[string]string, contributing, configuration string) (faults []string) {
	isFor := func(page, name string) bool {
		prefix, isPrefix := strings.CutSuffix(page, "…")
		return page == name || isPrefix && strings.HasPrefix(name, prefix)
	}
	ours := onPage.FindAllString(contributing, -1)
	pages := slices.Concat(ours, onPage.FindAllString(configuration, -1))
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if !slices.ContainsFunc(pages, func(page string) bool { return isFor(page, name) }) {
			faults = append(faults, read[name]+" reads "+name+", which CONTRIBUTING.md and docs/reference/configuration.md do not name")
		}
	}
	for _, page := range ours {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(read)), func(name string) bool { return isFor(page, name) }) {
			faults = append(faults, "CONTRIBUTING.md names "+page+", which nothing reads")
		}
	}
	return faults
}

func TestVariables(t *testing.T) {
	t.Chdir("../..")
	contributing := must(os.ReadFile("CONTRIBUTING.md"))
	configuration := must(os.ReadFile("docs/reference/configuration.md"))
	for _, fault := range faultsOfVariables(variables(t, os.DirFS(".")), string(contributing), string(configuration)) {
		t.Error(fault)
	}
}

func TestPlantedVariables(t *testing.T) {
	t.Chdir("../..")
	is := is.New(t)
	ours := strings.NewReplacer("X_", "SVC_").Replace // so that this file names no variable
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(ours(text))} }
	read := variables(t, fstest.MapFS{
		"a_test.go":  file(`os.Getenv("X_ONE") + number("X_TWO"); t.Setenv("X_SET", ""); m{"X_LOG": "x"}; "X_" + key`),
		".ci/run":    file(`export X_OWN=1; echo "${X_THREE:-1}" $X_FOUR`),
		"b/drive.ts": file(`process.env.X_FIVE`),
		"b/page.md":  file(`"X_SIX"`),
	})
	is.Equal(strings.Join(slices.Sorted(maps.Keys(read)), " "), ours("X_FIVE X_FOUR X_ONE X_THREE X_TWO"))
	faults := faultsOfVariables(read, ours("X_O… X_T… `X_FOUR`, `X_GONE`"), ours("X_FIV and X_FIVE_"))
	is.Equal(strings.Join(faults, "\n"), ours("b/drive.ts reads X_FIVE, which CONTRIBUTING.md and docs/reference/configuration.md do not name\n"+
		"CONTRIBUTING.md names X_GONE, which nothing reads"))
}
