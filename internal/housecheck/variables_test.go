package housecheck_test

import (
	"bytes"
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
)

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
