package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// refuse returns the notes of the version, or why there can be none: the tree is dirty, the version
// is there already, or CHANGELOG.md does not have it.
func (r *release) refuse(ctx context.Context) (notes string, err error) {
	dirty, err := command(r.root, nil, "git", "status", "--porcelain").output(ctx)
	if err != nil {
		return "", err
	}
	if len(dirty) > 0 {
		return "", fmt.Errorf("the tree is not what is committed: commit or remove\n%s", dirty)
	}
	for _, path := range []string{r.published(rootModule, ".info"), r.notesFile(r.out)} {
		if _, err := os.Stat(path); err == nil {
			return "", fmt.Errorf("%s is there already: choose another version or another folder",
				path)
		}
	}
	tag := command(r.root, nil, "git", "rev-parse", "-q", "--verify", r.version+"^{commit}")
	if tagged, err := tag.line(ctx); err == nil {
		head, err := command(r.root, nil, "git", "rev-parse", "HEAD").line(ctx)
		if err != nil || head != tagged {
			return "", errors.Join(err,
				fmt.Errorf("the tag %s names another commit, %s", r.version, tagged))
		}
	}
	return r.section(r.version)
}

// section returns what CHANGELOG.md says of a version, without its heading.
func (r *release) section(version string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(text), "\n## ["+strings.TrimPrefix(version, "v")+"]")
	_, rest, _ = strings.Cut(rest, "\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	if section = strings.TrimSpace(section); !found || section == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section [%s], or an empty one: write it",
			strings.TrimPrefix(version, "v"))
	}
	return section + "\n", nil
}

func (r *release) notesFile(folder string) string {
	return filepath.Join(folder, "notes", r.version+".md")
}

func (r *release) writeNotes(notes string) error {
	return write(r.notesFile(r.scratch), []byte("# svc "+r.version+"\n\n"+notes))
}

// checkout writes the files of a commit into a folder.
func checkout(ctx context.Context, root, commit, to string) error {
	archive, err := command(root, nil, "git", "archive", "--format=tar", commit).output(ctx)
	if err != nil {
		return err
	}
	files := tar.NewReader(bytes.NewReader(archive))
	for {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if file.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(to, file.Name), text); err != nil {
			return err
		}
	}
}

// copyWorktree takes the files as they are, with those that are not committed yet.
func (r *release) copyWorktree(ctx context.Context) error {
	list := command(r.root, nil,
		"git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	names, err := list.output(ctx)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not committed yet
		} else if err != nil {
			return err
		}
		if err := write(filepath.Join(r.tree, name), text); err != nil {
			return err
		}
	}
	return nil
}

// publish moves what is in scratch into the folder of the release, file by file and in this order.
// The files of older versions stay.
func (r *release) publish(folders ...string) error {
	for _, folder := range folders {
		from := filepath.Join(r.scratch, folder)
		err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(r.scratch, path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			return replace(filepath.Join(r.out, name), text, info.Mode())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func write(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// replace writes a file next to path and renames it, so path is never half-written.
func replace(path string, text []byte, mode os.FileMode) error {
	err := write(path+".new", text)
	if err == nil {
		err = os.Chmod(path+".new", mode)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
