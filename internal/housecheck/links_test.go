package housecheck_test

import (
	"go/ast"
	"go/build"
	godoc "go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/extsvc/svc/internal/expect"
)

// ours is the path of the root module. Its packages and those of the nested modules begin with it.
const ours = "github.com/extsvc/svc"

// names are the exported identifiers of a package: "Service", "Service.Decide", "Config.Keys". The
// value of a type is true.
type names map[string]bool

func (n names) have(name string) bool {
	_, found := n[name]
	return found
}

// library knows the names of packages, each read once.
type library map[string]names

// of returns the names of a package, or nil when there is no such package.
func (l library) of(path string) names {
	if known, found := l[path]; found {
		return known
	}
	dir := filepath.Join(goroot(), "src", filepath.FromSlash(path))
	if rest, is := strings.CutPrefix(path+"/", ours+"/"); is {
		dir = filepath.FromSlash("./" + rest)
	}
	_, files := parsed(dir)
	var all names
	for _, file := range files {
		if all == nil {
			all = names{}
		}
		all.see(file)
	}
	l[path] = all
	return all
}

// goroot asks the go command: a test that is compiled with -trimpath does not know it.
var goroot = sync.OnceValue(func() string {
	root, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(root))
})

// parsed returns the files of the package in a directory, without tests.
func parsed(dir string) (set *token.FileSet, files []*ast.File) {
	set = token.NewFileSet()
	found, err := build.ImportDir(dir, 0)
	if err != nil {
		return set, nil
	}
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.ParseComments)
		if err == nil {
			files = append(files, file)
		}
	}
	return set, files
}

// see adds the exported names that a file declares, and the members of types but for embedded ones.
func (n names) see(file *ast.File) {
	add := func(parts ...string) {
		if !slices.ContainsFunc(parts, func(name string) bool { return !ast.IsExported(name) }) {
			n[strings.Join(parts, ".")] = false
		}
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name.Name)
			} else {
				add(receiver(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					n[s.Name.Name] = true
					for _, member := range members(s) {
						add(s.Name.Name, member)
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(name.Name)
					}
				}
			}
		}
	}
}

func members(s *ast.TypeSpec) (all []string) {
	list := &ast.FieldList{}
	switch of := s.Type.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	}
	for _, member := range list.List {
		for _, name := range member.Names {
			all = append(all, name.Name)
		}
	}
	return all
}

// bracketed is what looks like a doc link: [Name], [*Type.Method], [package.Name].
var bracketed = regexp.MustCompile(`\[\*?(?:[A-Z]\w*|[a-z][\w/]*\.[A-Z]\w*)(?:\.[A-Z]\w*)?\]`)

// deadLinks returns the links of a comment that lead nowhere. A link to a field is one to godoc
// only with its package in front.
func (l library) deadLinks(of *godoc.Package, text string) (dead []string) {
	walk := func(texts []comment.Text) {
		for _, text := range texts {
			switch t := text.(type) {
			case comment.Plain:
				dead = append(dead, bracketed.FindAllString(string(t), -1)...)
			case *comment.DocLink:
				name := strings.TrimPrefix(t.Recv+"."+t.Name, ".")
				if t.ImportPath != "" && !l.of(t.ImportPath).have(name) {
					dead = append(dead, "["+t.ImportPath+"."+name+"]")
				}
			}
		}
	}
	for _, block := range of.Parser().Parse(text).Content {
		switch b := block.(type) {
		case *comment.Paragraph:
			walk(b.Text)
		case *comment.List:
			for _, item := range b.Items {
				for _, block := range item.Content {
					walk(block.(*comment.Paragraph).Text)
				}
			}
		}
	}
	return dead
}

var (
	// qualified is a name with what it belongs to: "svc.New", "Config.Memory.Keys".
	qualified = regexp.MustCompile(`\b[A-Za-z]\w*(?:\.[A-Z]\w*)+`)
	// constant is the name of a constant or of an error. Those of others have their package in front.
	constant = regexp.MustCompile(`(?:^|[^.\w])((?:Code|Kind|Err|Trace|Finding)[A-Z]\w*)`)
)

// deadNames returns the Go names of a text that are missing in the packages of ours that l knows:
// "svc.Name", "Type.Member" of a type that exists, and names of constants. What begins with another
// package or variable is not looked at, but for "service".
func (l library) deadNames(text string) (dead []string) {
	for _, chain := range qualified.FindAllString(text, -1) {
		parts := strings.Split(chain, ".")
		if parts[0] != "service" && !ast.IsExported(parts[0]) && !l.hasPackage(parts[0]) {
			continue
		}
		for i, name := range parts[1:] {
			if !l.has(parts[i], name) {
				dead = append(dead, chain)
				break
			}
		}
	}
	for _, match := range constant.FindAllStringSubmatch(text, -1) {
		name := match[1]
		if !l.any(func(n names) bool { return n.have(name) || n.member(name) }) {
			dead = append(dead, name)
		}
	}
	return dead
}

func (l library) hasPackage(base string) bool {
	for at := range l {
		if path.Base(at) == base {
			return true
		}
	}
	return false
}

// has reports whether the package, the type or the field named of has that name. What is none of
// them is not ours and has every name.
func (l library) has(of, name string) bool {
	isType, isField := false, false
	for at, known := range l {
		if path.Base(at) == of {
			return known.have(name)
		}
		if known.have(of + "." + name) {
			return true
		}
		isType, isField = isType || known[of], isField || known.member(of)
	}
	return !isType || isField && l.any(func(n names) bool { return n.member(name) })
}

func (l library) any(is func(names) bool) bool {
	for _, known := range l {
		if is(known) {
			return true
		}
	}
	return false
}

func (n names) member(name string) bool {
	for known := range n {
		if strings.HasSuffix(known, "."+name) {
			return true
		}
	}
	return false
}

func comments(file *ast.File, see func(*ast.CommentGroup)) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.File:
			see(n.Doc)
		case *ast.GenDecl:
			see(n.Doc)
		case *ast.FuncDecl:
			see(n.Doc)
			return false
		case *ast.TypeSpec:
			see(n.Doc)
		case *ast.ValueSpec:
			see(n.Doc)
			see(n.Comment)
		case *ast.Field:
			see(n.Doc)
			see(n.Comment)
		}
		return true
	})
}

func documented(t *testing.T, dir string) (of *godoc.Package, texts map[string]string) {
	set, files := parsed(dir)
	texts = map[string]string{}
	for _, file := range files {
		comments(file, func(group *ast.CommentGroup) {
			if group != nil {
				texts[set.Position(group.Pos()).String()] = group.Text()
			}
		})
	}
	of = must(godoc.NewFromFiles(set, files, path.Join(ours, dir), godoc.PreserveAST))
	return of, texts
}

// TestDocLinks: every link in the comments of a public package leads to a name that exists.
func TestDocLinks(t *testing.T) {
	t.Chdir("../..")
	known, links := library{}, 0
	for _, dir := range imported {
		of, texts := documented(t, dir)
		for at, text := range texts {
			links += len(bracketed.FindAllString(text, -1))
			for _, link := range known.deadLinks(of, text) {
				t.Errorf("%s: %s leads nowhere", at, link)
			}
		}
	}
	expect.Holds(t, links >= 200, "links that were found: ", links)
}

// TestNamesInTexts: the Go names that comments and pages mention exist.
func TestNamesInTexts(t *testing.T) {
	t.Chdir("../..")
	known, mentioned := library{}, 0
	_, texts := sources(t)
	for _, dir := range imported {
		known.of(path.Join(ours, dir))
		_, comments := documented(t, dir)
		maps.Copy(texts, comments)
	}
	for at, text := range texts {
		mentioned += len(qualified.FindAllString(text, -1))
		for _, name := range known.deadNames(text) {
			t.Errorf("%s: %s does not exist", at, name)
		}
	}
	expect.Holds(t, mentioned >= 500, "names that were found: ", mentioned)
}

// A link or a name that does not exist is found.
func TestDeadLinks(t *testing.T) {
	t.Chdir("../..")
	known := library{}
	of, _ := documented(t, ".")
	for _, dir := range imported {
		known.of(path.Join(ours, dir))
	}
	for text, dead := range map[string]int{
		"[Service] and [*Error], [Service.Decide], [errors.Join], [slog.LevelError], a[0], [1, 2]":        0,
		"[Servise], [Service.Decides], [errors.Joins], [slog.Levels], [list]:\n\n  - of [Lists]\n":        8,
		"Config.Users.Known, svc.Config, svc.New, Templates.Install, CodeInvalid, limits.Errors, Node.js": 0,
		"Config.KnownUsers, svc.Configs, httpapi.New2, Templates.Instal, CodeWrong, event.Never":          6,
		"service.Keys.Isue": 1,
	} {
		found := append(known.deadLinks(of, text), known.deadNames(text)...) // a name in a link counts twice
		expect.Equal(t, []any{text, found}, len(found), dead)
	}
}

// imported are the packages that hosts import.
var imported = []string{".", "action", "adminpage", "client", "event", "httpapi", "limits", "marketplace", "parameter", "svctest", "store/memstore", "store/sqlstore", "store/storetest", "store/sqlite", "store/postgres", "store/postgres/pgtest"}

// spoken are methods that say what they are by their name: those of interfaces of the standard library.
var spoken = []string{"Error", "Unwrap", "String", "GoString", "Format", "LogValue", "MarshalText"}

// Every exported name has a comment, and so has every package.
func TestEveryExportIsDocumented(t *testing.T) {
	t.Chdir("../..")
	for _, dir := range imported {
		said := false
		_, files := parsed(dir)
		for _, file := range files {
			said = said || file.Doc != nil
			for _, declaration := range file.Decls {
				for _, symbol := range undocumented(declaration) {
					t.Errorf("%s: %s has no comment", dir, symbol)
				}
			}
		}
		expect.Holds(t, said, "the package in ", dir, " has a comment")
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
	t.Chdir("../..")
	for _, dir := range imported {
		found := examples(t, dir)
		expect.Holds(t, len(found) > 0 || dir == "store/postgres/pgtest", "the package in ", dir, " has an example")
		for _, noun := range nouns {
			isOfNoun := func(name string) bool { return strings.HasPrefix(name, "Example"+noun+"_") }
			expect.Holds(t, dir != "." || slices.ContainsFunc(found, isOfNoun), noun, " has an example")
		}
	}
}

func examples(t *testing.T, dir string) (all []string) {
	files := must(filepath.Glob(filepath.Join(dir, "*_test.go")))
	for _, name := range files {
		file := must(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))
		for _, declaration := range file.Decls {
			f, is := declaration.(*ast.FuncDecl)
			if is && strings.HasPrefix(f.Name.Name, "Example") && strings.HasSuffix(file.Name.Name, "_test") {
				all = append(all, f.Name.Name)
			}
		}
	}
	return all
}
