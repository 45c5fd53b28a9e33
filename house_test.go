package svc_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// house counts what makes the root package hard to read.
type house struct {
	files   int            // Go files, without tests
	aliases int            // public names for types of internal packages
	public  map[string]int // exported methods by type
	private map[string]int
}

// The most that the root may have.
const (
	mostFiles          = 31
	mostServiceMethods = 14
	mostServicePrivate = 12
	mostNounMethods    = 16
)

var nouns = []string{"Templates", "Sources", "Keys", "Policies", "Access", "Audit"}

func count(t *testing.T, root fs.FS) house {
	t.Helper()
	h := house{public: map[string]int{}, private: map[string]int{}}
	names, err := fs.Glob(root, "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		h.files++
		h.see(file)
	}
	return h
}

func (h *house) see(file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				continue
			}
			if of := receiverOf(d); d.Name.IsExported() {
				h.public[of]++
			} else {
				h.private[of]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, is := spec.(*ast.TypeSpec); is && s.Assign.IsValid() && s.Name.IsExported() {
					h.aliases++
				}
			}
		}
	}
}

func receiverOf(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	name, _ := of.(*ast.Ident)
	return name.String()
}

// problems names what the house has too much of.
func (h house) problems() (problems []string) {
	check := func(what string, is, most int) {
		if is > most {
			problems = append(problems, fmt.Sprintf("%s: %d, and %d are allowed", what, is, most))
		}
	}
	check("files in the root", h.files, mostFiles)
	check("public aliases", h.aliases, 0)
	check("public methods of Service", h.public["Service"], mostServiceMethods)
	check("private methods of Service", h.private["Service"], mostServicePrivate)
	for _, noun := range nouns {
		check("public methods of "+noun, h.public[noun], mostNounMethods)
		check("private methods of "+noun, h.private[noun], mostNounMethods)
		if h.public[noun] == 0 {
			problems = append(problems, noun+" has no methods")
		}
	}
	return problems
}

func TestHouse(t *testing.T) {
	for _, problem := range count(t, os.DirFS(".")).problems() {
		t.Error(problem)
	}
}

// A house that grows is noticed.
func TestHouseThatGrows(t *testing.T) {
	whole := fstest.MapFS{}
	for _, name := range must(fs.Glob(os.DirFS("."), "*.go")) {
		whole[name] = &fstest.MapFile{Data: must(os.ReadFile(name))}
	}
	methods := "package svc\n"
	for i := range mostNounMethods + 1 {
		methods += fmt.Sprintf("func (s *Service) Planted%d() {}\n", i)
	}
	for what, source := range map[string]string{
		"files in the root":         "package svc\n",
		"public aliases":            "package svc\n\ntype Planted = int\n",
		"public methods of Service": methods,
	} {
		planted := maps.Clone(whole)
		planted["planted.go"] = &fstest.MapFile{Data: []byte(source)}
		if !strings.Contains(strings.Join(count(t, planted).problems(), "\n"), what) {
			t.Errorf("planted %s are not noticed", what)
		}
	}
}
