package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// compare refuses a version that breaks programs for the one before it, unless CHANGELOG.md says
// Breaking above that one.
func (r *release) compare(ctx context.Context) error {
	before, modules, err := r.earlier(ctx)
	if err != nil {
		return err
	} else if before == "" {
		fmt.Println("no earlier version: nothing to compare with")
		return nil
	}
	broken, err := r.broken(ctx, modules)
	if err != nil || len(broken) == 0 {
		return err
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	newer, _, _ := strings.Cut(string(changes), "\n## ["+strings.TrimPrefix(before, "v")+"]")
	if strings.Contains(newer, "Breaking") {
		return nil
	}
	return fmt.Errorf("programs for %s break, and CHANGELOG.md does not say Breaking above it:\n%s",
		before, strings.Join(broken, "\n"))
}

// earlier returns the newest version below this one and its modules: that of a tag, or else that of
// the folder of the release. Both are empty for the first version.
func (r *release) earlier(ctx context.Context) (version string, modules []goModule, err error) {
	old := filepath.Join(r.scratch, "earlier")
	tags, err := command(r.root, nil, "git", "tag", "--merged", "HEAD", "--list", "v*").output(ctx)
	if err != nil {
		return "", nil, err
	}
	if version = r.newestOf(string(tags)); version != "" {
		err := checkout(ctx, r.root, version, old)
		if err == nil {
			modules, err = modulesOf(old, version)
		}
		return version, modules, err
	}
	list, err := os.ReadFile(filepath.Join(r.out, "proxy", rootModule, "@v", "list"))
	if version = r.newestOf(string(list)); version == "" {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", nil, err
	}
	for _, m := range r.modules {
		file := filepath.Join(r.out, "proxy", m.path, "@v", version+".zip")
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue // a new module
		}
		// Modules lie in each other.
		folder := filepath.Join(old, strings.ReplaceAll(m.path, "/", "_"))
		of := module.Version{Path: m.path, Version: version}
		if err := zip.Unzip(folder, of, file); err != nil {
			return "", nil, err
		}
		modules = append(modules, goModule{m.path, folder})
	}
	return version, modules, nil
}

// newestOf returns the newest version below that of the release. A rehearsal is of what comes after
// the version that it names.
func (r *release) newestOf(versions string) string {
	below := slices.DeleteFunc(strings.Fields(versions), func(v string) bool {
		order := semver.Compare(v, r.version)
		return semver.Canonical(v) != v || order > 0 || order == 0 && !r.rehearsal
	})
	if len(below) == 0 {
		return ""
	}
	return slices.MaxFunc(below, semver.Compare)
}

// broken lists what programs for the earlier modules use, and the release does not have.
func (r *release) broken(ctx context.Context, earlier []goModule) (broken []string, err error) {
	tool, err := r.tool(ctx, apidiff)
	if err != nil {
		return nil, err
	}
	env, err := r.hostEnv(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(useEachOther(earlier), useEachOther(r.modules)); err != nil {
		return nil, err
	}
	api := filepath.Join(r.scratch, "api")
	for _, old := range earlier {
		i := slices.IndexFunc(r.modules, func(m goModule) bool { return m.path == old.path })
		if i < 0 {
			broken = append(broken, old.path+": the module is gone")
		}
		if i < 0 || old.path == programs {
			continue
		}
		save := command(old.folder, env, tool, "-m", "-w", api, old.path)
		if _, err := save.output(ctx); err != nil {
			return nil, err
		}
		compare := command(r.modules[i].folder, env, tool, "-m", "-incompatible", api, old.path)
		differences, err := compare.output(ctx)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(differences)) {
			broken = append(broken, old.path+": "+strings.TrimSpace(line))
		}
	}
	return broken, nil
}

// useEachOther replaces the modules that a module requires by those of the same tree.
func useEachOther(modules []goModule) error {
	for _, m := range modules {
		err := edit(filepath.Join(m.folder, "go.mod"), func(file *modfile.File) (err error) {
			for _, other := range modules {
				err = errors.Join(err, file.AddReplace(other.path, "", other.folder, ""))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
