package housecheck_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/internal/longtest"
)

type house struct {
	files   int            // Go files, without tests
	names   int            // exported constants, variables, functions and types
	aliases int            // public names for types of internal packages
	modes   int            // comparisons of the cache with nil
	public  map[string]int // exported methods by type
	private map[string]int
	arrows  map[string]map[string]bool // of each file, the files whose declarations it uses
}

// The most that the root may have.
const (
	mostFiles          = 37
	mostArrows         = 262
	mostNames          = 289
	mostKnot           = 8
	mostServiceMethods = 14
	mostServicePrivate = 12
	mostNounMethods    = 16
)

var nouns = []string{
	"Templates", "Sources", "Keys", "Policies", "Users", "Groups", "ServiceAccounts", "Banks", "Access",
	"Audit",
}

func count(t *testing.T, root fs.FS) house {
	h := house{public: map[string]int{}, private: map[string]int{}}
	names := must(fs.Glob(root, "*.go"))
	set, files := token.NewFileSet(), []*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src := must(fs.ReadFile(root, name))
		file := must(parser.ParseFile(set, name, src, parser.SkipObjectResolution))
		h.files++
		h.see(file)
		h.modes += bytes.Count(src, []byte("copies == nil")) + bytes.Count(src, []byte("copies != nil"))
		files = append(files, file)
	}
	h.draw(set, files)
	return h
}

// hollow imports packages without their declarations: the arrows are those between our own files.
type hollow struct{}

func (hollow) Import(from string) (*types.Package, error) {
	p := types.NewPackage(from, path.Base(from))
	p.MarkComplete()
	return p, nil
}

func (h *house) draw(set *token.FileSet, files []*ast.File) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: hollow{}, Error: func(error) {}} // of what is hollow
	pkg, _ := config.Check("svc", set, files, info)
	h.arrows = map[string]map[string]bool{}
	for use, of := range info.Uses {
		function, _ := of.(*types.Func)
		isMethod := function != nil && function.Signature().Recv() != nil
		if of.Pkg() != pkg || of.Parent() != pkg.Scope() && !isMethod {
			continue
		}
		from, to := set.Position(use.Pos()).Filename, set.Position(of.Pos()).Filename
		if from == to {
			continue
		}
		if h.arrows[from] == nil {
			h.arrows[from] = map[string]bool{}
		}
		h.arrows[from][to] = true
	}
}

func (h *house) reached(from string, seen map[string]bool) map[string]bool {
	for to := range h.arrows[from] {
		if !seen[to] {
			seen[to] = true
			h.reached(to, seen)
		}
	}
	return seen
}

// knot returns the most files that all reach each other.
func (h *house) knot() (most int) {
	reach := map[string]map[string]bool{}
	for file := range h.arrows {
		reach[file] = h.reached(file, map[string]bool{})
	}
	for file, all := range reach {
		n := 0
		for other := range all {
			if reach[other][file] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func (h *house) see(file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				h.export(d.Name)
				continue
			}
			if of := receiver(d.Recv.List[0].Type); d.Name.IsExported() {
				h.public[of]++
			} else {
				h.private[of]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					h.export(s.Names...)
				case *ast.TypeSpec:
					h.export(s.Name)
					if s.Assign.IsValid() && s.Name.IsExported() {
						h.aliases++
					}
				}
			}
		}
	}
}

func (h *house) export(names ...*ast.Ident) {
	for _, name := range names {
		if name.IsExported() {
			h.names++
		}
	}
}

func (h house) problems() (problems []string) {
	check := func(what string, is, most int) {
		if is > most {
			problems = append(problems, fmt.Sprintf("%s: %d, and %d are allowed", what, is, most))
		}
	}
	check("files in the root", h.files, mostFiles)
	arrows := 0
	for _, to := range h.arrows {
		arrows += len(to)
	}
	check("arrows between files", arrows, mostArrows)
	check("files in one knot", h.knot(), mostKnot)
	check("comparisons of the cache with nil", h.modes, 0)
	check("exported names", h.names, mostNames)
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
	t.Chdir("../..")
	for _, problem := range count(t, os.DirFS(".")).problems() {
		t.Error(problem)
	}
}

func TestHouseThatGrows(t *testing.T) {
	longtest.Test(t, "that these tests find faults")
	t.Chdir("../..")
	whole := fstest.MapFS{}
	for _, name := range must(fs.Glob(os.DirFS("."), "*.go")) {
		whole[name] = &fstest.MapFile{Data: must(os.ReadFile(name))}
	}
	for i := count(t, whole).files; i < mostFiles; i++ {
		whole[fmt.Sprintf("room%d.go", i)] = &fstest.MapFile{Data: []byte("package svc\n")}
	}
	methods := "package svc\n"
	for i := range mostNounMethods + 1 {
		methods += fmt.Sprintf("func (s *Service) Planted%d() {}\n", i)
	}
	for what, source := range map[string]string{
		"files in the root":         "package svc\n",
		"public aliases":            "package svc\n\ntype Planted = int\n",
		"exported names":            "package svc\n\nconst Planted = 1\n",
		"public methods of Service": methods,
		"comparisons of the cache":  "package svc\n\nvar _ = (&Service{}).copies == nil\n",
		"arrows between files":      "package svc\n\nvar _ = []any{Code(\"\"), Host, (*Service).Ping, (*Keys).Issue, (*Sources).Search, (*Access).Apply}\n",
	} {
		planted := maps.Clone(whole)
		planted["planted.go"] = &fstest.MapFile{Data: []byte(source)}
		expect.Holds(t, strings.Contains(strings.Join(count(t, planted).problems(), "\n"), what), "planted ", what, " are noticed")
	}
	knotted := maps.Clone(whole)
	ground := slices.Concat(whole["errors.go"].Data, []byte("\nvar _ = (*Service).Ping\n"))
	knotted["errors.go"] = &fstest.MapFile{Data: ground}
	expect.Holds(t, strings.Contains(strings.Join(count(t, knotted).problems(), "\n"), "in one knot"), "a planted knot is noticed")
}

// TestNothingDecidesByTenant: the id of a tenant is written and handed on; nothing compares it or takes it apart. It cannot tell a user of the
// id "sa:ci" from the service account.
func TestNothingDecidesByTenant(t *testing.T) {
	t.Chdir("../..")
	decides := regexp.MustCompile(`TenantID\)?\s*[=!]=|[=!]=\s*[\w.]*TenantID|switch[^{]*TenantID|strings\.\w+\([^)]*TenantID|\[[\w.]*TenantID\]`)
	is, spoken := is.New(t), 0
	files, _ := sources(t)
	for name, lines := range files {
		source := strings.Join(lines, "\n")
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		spoken += strings.Count(source, "TenantID")
		expect.Equal(t, name+" decides by the id of a tenant", decides.FindString(source), "")
	}
	is.True(spoken > 5)
	for _, planted := range []string{`if r.TenantID == "a"`, `"a" != r.TenantID`, `strings.Cut(r.TenantID, ":")`, "switch r.TenantID {", "banks[r.TenantID]"} {
		is.True(decides.MatchString(planted))
	}
}
