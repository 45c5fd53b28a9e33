package housecheck_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/matryer/is"
)

// clockReads are what tells a test how long something takes on this machine.
var clockReads = []string{"time.Since", "time.Until", "time.After", "Sub", "Before", "After", "Elapsed"}

// readsClock reports whether a test, or a helper of tests, decides by the clock of the machine. These do not: a wait with a
// bound of a minute or more, and a test in a bubble of synctest, whose clock is its own.
func readsClock(of *ast.FuncDecl) (found bool) {
	bounds := map[string]bool{} // variables of a minute or more from now
	long := func(n ast.Node) (is bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				is = is || selector(n) == "time.Minute" || selector(n) == "time.Hour"
			case *ast.Ident:
				is = is || bounds[n.Name]
			}
			return !is
		})
		return is
	}
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if name, is := n.Lhs[0].(*ast.Ident); is && len(n.Rhs) == 1 && long(n.Rhs[0]) {
				bounds[name.Name] = true
			}
		case *ast.BinaryExpr:
			if (n.Op == token.GTR || n.Op == token.LSS) && (long(n.X) || long(n.Y)) {
				return false
			}
		case *ast.CallExpr:
			name := selector(n.Fun)
			if name == "synctest.Test" {
				return false
			}
			_, method, _ := strings.Cut(name, "().")
			now := strings.HasPrefix(name, "time.Now().") || strings.HasSuffix(name, ".Elapsed")
			listed := slices.Contains(clockReads, name) || now && slices.Contains(clockReads, method) ||
				strings.HasSuffix(name, ".Elapsed")
			found = found || listed && !slices.ContainsFunc(n.Args, func(arg ast.Expr) bool { return long(arg) })
		}
		return true
	})
	return found
}

func selector(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.CallExpr:
		return selector(n.Fun) + "()"
	case *ast.SelectorExpr:
		return selector(n.X) + "." + n.Sel.Name
	}
	return ""
}

// clocked returns the functions of tests that read the clock, as "path Name".
func clocked(t *testing.T, root fs.FS) (all []string) {
	t.Helper()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (name == "bench" || d.Name() == "testdata" || d.Name() == "node_modules" || name == "OUT") {
			return cmp.Or(err, fs.SkipDir)
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil || !strings.Contains(string(source), `"time"`) && !strings.Contains(string(source), "Elapsed") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if of, is := decl.(*ast.FuncDecl); is && readsClock(of) {
				all = append(all, path.Clean(name)+" "+of.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// exceptions reads a list of "name: reason" lines.
func exceptions(t *testing.T, file string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile(file)))) {
		name, reason, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if reason == "" || all[name] != "" {
			t.Errorf("%s: %q has no reason, or is there twice", file, line)
		}
		all[name] = reason
	}
	return all
}

// unlisted names what a list of exceptions has no reason for, and what it has a reason for that is no more.
func unlisted(have []string, listed map[string]string) (problems []string) {
	for _, name := range have {
		if listed[name] == "" {
			problems = append(problems, "new: "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !slices.Contains(have, name) {
			problems = append(problems, "gone: "+name)
		}
	}
	return problems
}

// No test is decided by the clock of the machine, but for those that the list has a reason for.
func TestClock(t *testing.T) {
	t.Chdir("../..")
	for _, problem := range unlisted(clocked(t, os.DirFS(".")), exceptions(t, "internal/housecheck/testdata/clock.txt")) {
		t.Errorf("testdata/clock.txt: %s (let it wait until a thing is true, count, or use synctest)", problem)
	}
}

func TestExceptionsAreExact(t *testing.T) {
	t.Chdir("../..")
	listed := map[string]string{"a": "reason", "b": "reason"}
	is.New(t).Equal(unlisted([]string{"a", "c"}, listed), []string{"new: c", "gone: b"})
}

func TestPlantedClock(t *testing.T) {
	t.Chdir("../..")
	is := is.New(t)
	for body, want := range map[string]bool{
		`if time.Since(began) > time.Second { t.Error() }`:                                     true,
		`is.True(time.Now().Sub(began) < 2*time.Second)`:                                       true,
		`for end := time.Now().Add(time.Second); time.Now().Before(end); {}`:                   true,
		`select { case <-time.After(time.Second): t.Error() }`:                                 true,
		`took := b.Elapsed(); _ = took`:                                                        true,
		`for began := time.Now(); time.Since(began) < time.Minute; {}`:                         false,
		`end := time.Now().Add(time.Minute); for time.Now().Before(end) {}`:                    false,
		`select { case <-time.After(time.Minute): t.Error() }`:                                 false,
		`synctest.Test(t, func(t *testing.T) { is.Equal(time.Since(began), time.Second) })`:    false,
		`is.True(a.ExpiresAt.Sub(a.CreatedAt) > time.Second); is.True(a.Before(b) && later())`: false,
	} {
		file := fmt.Sprintf("package x\n\nimport \"time\"\n\nfunc TestX(t *testing.T) {\n%s\n}\n", body)
		got := clocked(t, fstest.MapFS{"a/x_test.go": {Data: []byte(file)}})
		if want {
			is.Equal(got, []string{"a/x_test.go TestX"})
		} else {
			is.Equal(got, nil)
		}
	}
}

// .ci/cpu runs the tests of a package, and fails when they take too much CPU.
func TestLimitOfCPU(t *testing.T) {
	t.Chdir("../..")
	is := is.New(t)
	run := func(most, script string) (status int, said string) {
		command := exec.CommandContext(t.Context(), ".ci/cpu", "sh", "-c", script)
		command.Env = append(os.Environ(), "SVC_CPU="+most)
		text, err := command.CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Skip("NOT TESTED here, because there is no bash: ", err)
		}
		return command.ProcessState.ExitCode(), string(text)
	}
	const busy = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`
	status, said := run("0.01", busy)
	is.Equal(status, 1)
	is.True(strings.Contains(said, "FAIL"))
	status, _ = run("0.01", "sh -c '"+busy+"'; exit 3")
	is.Equal(status, 3)
	status, said = run("1000", "echo works")
	is.Equal(status, 0)
	is.True(strings.HasPrefix(said, "works\ncpu: "))
}

// compiledTwice returns the packages that go compiles once more for tests of another package: a test
// file in a package itself does that to all packages between it and its tests.
func compiledTwice(list string) (all []string) {
	for line := range strings.Lines(list) {
		words := strings.Fields(line) // package [of.test] of
		if len(words) < 3 {
			continue
		}
		name, of := words[0], words[2]
		if name != of && name != of+"_test" {
			all = append(all, name+" for "+of)
		}
	}
	return all
}

func TestNothingIsCompiledTwice(t *testing.T) {
	t.Chdir("../..")
	command := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps",
		"-f", "{{if .ForTest}}{{.ImportPath}} {{.ForTest}}{{end}}", "./...")
	list := must(command.Output())
	for _, problem := range compiledTwice(string(list)) {
		t.Errorf("%s is compiled once more: its tests have to be outside of the package (package x_test)", problem)
	}
	is.New(t).Equal(compiledTwice("svc [svc.test] svc\nsvc_test [svc.test] svc\n\nsvc/httpapi [svc.test] svc\n"), []string{"svc/httpapi for svc"})
}
