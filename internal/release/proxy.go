package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

const rootModule = "github.com/extsvc/svc"

// goModule is a module that hosts import or install: one without replacements, outside of docs,
// e2e, internal and testdata.
type goModule struct {
	path, folder string
}

// published returns the path of a file of a module's version in the proxy of the release's folder.
func (r *release) published(path, ending string) string {
	return filepath.Join(r.out, "proxy", path, "@v", r.version+ending)
}

// writeProxy writes the modules of the tree as the proxy serves them. Each requires the others at
// the version of the release.
func (r *release) writeProxy(ctx context.Context) error {
	at, err := command(r.root, nil, "git", "log", "-1", "--format=%cI").line(ctx)
	if err != nil {
		return err
	}
	committed, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return err
	}
	if r.modules, err = modulesOf(r.tree, r.version); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.tree, "LICENSE"))
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := write(filepath.Join(m.folder, "LICENSE"), license); err != nil {
			return err
		}
		if err := r.writeModule(m, committed.UTC()); err != nil {
			return fmt.Errorf("module %s: %w", m.path, err)
		}
	}
	return nil
}

func (r *release) writeModule(m goModule, committed time.Time) error {
	base := filepath.Join(r.scratch, "proxy", m.path, "@v", r.version)
	mod, err := os.ReadFile(filepath.Join(m.folder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{r.version, committed})
	if err != nil {
		return err
	}
	var files bytes.Buffer
	of := module.Version{Path: m.path, Version: r.version}
	if err := zip.CreateFromDir(&files, of, m.folder); err != nil {
		return err
	}
	return errors.Join(write(base+".mod", mod), write(base+".info", info),
		write(base+".zip", files.Bytes()), r.writeList(m))
}

// writeList adds the version to those that the folder of the release has.
func (r *release) writeList(m goModule) error {
	text, err := os.ReadFile(filepath.Join(r.out, "proxy", m.path, "@v", "list"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	versions := append(strings.Fields(string(text)), r.version)
	semver.Sort(versions)
	list := strings.Join(slices.Compact(versions), "\n") + "\n"
	return write(filepath.Join(r.scratch, "proxy", m.path, "@v", "list"), []byte(list))
}

// modulesOf returns the modules of a tree, and has them require each other at a version.
func modulesOf(tree, version string) (modules []goModule, err error) {
	err = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() &&
			slices.Contains([]string{"docs", "e2e", "internal", "testdata"}, entry.Name()) {
			return fs.SkipDir
		}
		if entry.Name() != "go.mod" {
			return nil
		}
		return edit(path, func(file *modfile.File) error {
			if len(file.Replace) > 0 {
				return nil // of tests and benchmarks
			}
			modules = append(modules, goModule{file.Module.Mod.Path, filepath.Dir(path)})
			return requireSiblings(file, version)
		})
	})
	return modules, err
}

func requireSiblings(file *modfile.File, version string) error {
	for _, required := range file.Require {
		if p := required.Mod.Path; p == rootModule || strings.HasPrefix(p, rootModule+"/") {
			if err := file.AddRequire(p, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// edit changes a go.mod.
func edit(path string, change func(*modfile.File) error) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return err
	}
	if err := change(file); err != nil {
		return err
	}
	if text, err = file.Format(); err != nil {
		return err
	}
	return write(path, text)
}
