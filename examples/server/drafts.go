package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// draftsPrefix begins the names of folders with drafts.
const draftsPrefix = ".svc-draft-"

// makeDrafts makes a folder with mode 0700, next to the file that a command makes, for what is not finished. It is
// locked until remove. It removes the folders of commands that were killed: each may have a copy of the database
// or its secrets, and would fill the disk in time.
func makeDrafts(file string) (path string, remove func(), err error) {
	folder := filepath.Dir(file)
	if err := removeAbandoned(folder); err != nil {
		return "", nil, err
	}
	for range 100 {
		if path, err = os.MkdirTemp(folder, draftsPrefix+"*"); err != nil {
			return "", nil, err
		}
		unlock, failed := lockFolder(path)
		if _, err = os.Stat(path); err == nil && (failed == nil || errors.Is(failed, errors.ErrUnsupported)) {
			return path, func() { _ = os.RemoveAll(path); unlock() }, nil
		}
		err = errors.Join(err, failed) // another command has removed it before it was locked
	}
	return "", nil, err
}

// removeAbandoned leaves what another user has in a folder that all may write to, such as /tmp.
func removeAbandoned(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		end, ours := strings.CutPrefix(entry.Name(), draftsPrefix)
		if !ours || !entry.IsDir() || strings.Trim(end, "0123456789") != "" { // as os.MkdirTemp ends it
			continue
		}
		path := filepath.Join(folder, entry.Name())
		if unlock, failed := lockFolder(path); failed == nil {
			if failed = os.RemoveAll(path); !errors.Is(failed, fs.ErrPermission) {
				err = errors.Join(err, failed)
			}
			unlock()
		}
	}
	return err
}

// put gives a draft its name, durably, unless that is taken.
func put(draft, name string) (made bool, err error) {
	err = os.Link(draft, name)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if made = err == nil; made {
		_ = os.Remove(draft) // SQLite opens no database with two names
	}
	if err = syncDir(filepath.Dir(name)); err != nil && made {
		_ = os.Remove(name)
	}
	return made, err
}

// putNew is put for a name that must be free.
func putNew(draft, name string) error {
	made, err := put(draft, name)
	if err == nil && !made {
		err = taken(name)
	}
	return err
}

// makeText makes a file with a text, whole and durable, unless there is one.
func makeText(name, text string) (made bool, err error) {
	drafts, remove, err := makeDrafts(name)
	if err != nil {
		return false, err
	}
	defer remove()
	draft := filepath.Join(drafts, "text")
	if err := writeText(draft, text); err != nil {
		return false, err
	}
	return put(draft, name)
}

func writeText(path, text string) error {
	return writeWhole(path, func(file *os.File) error {
		_, err := io.WriteString(file, text)
		return err
	})
}

// checkNew refuses a SQLite database that exists, or one of the files that belong to it.
func checkNew(db string) error {
	for _, file := range filesOf(db) {
		if err := checkNone(file); err != nil {
			return err
		}
	}
	return nil
}

func checkNone(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return taken(file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func taken(file string) error {
	return fmt.Errorf("%s exists: move it away, or name another place", file)
}
