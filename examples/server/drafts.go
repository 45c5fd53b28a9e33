package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// draftsPrefix begins the names of folders with drafts.
const draftsPrefix = ".svc-draft-"

// makeDrafts makes a folder with mode 0700, beside the file that a command makes, for what is not finished. It is
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

func removeAbandoned(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if !strings.HasPrefix(entry.Name(), draftsPrefix) {
			continue
		}
		if unlock, failed := lockFolder(path); failed == nil {
			err = errors.Join(err, os.RemoveAll(path))
			unlock()
		}
	}
	return err
}

// putNew gives a file in a folder of drafts its name. It replaces nothing.
func putNew(draft, name string) error {
	if err := os.Link(draft, name); errors.Is(err, fs.ErrExist) {
		return taken(name)
	} else if err != nil {
		return err
	}
	err := syncDir(filepath.Dir(name))
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// putText makes a file with a text, whole, unless there is one.
func putText(text, name string) error {
	drafts, remove, err := makeDrafts(name)
	if err != nil {
		return err
	}
	defer remove()
	draft := filepath.Join(drafts, "text")
	if err := writeText(draft, text); err != nil {
		return err
	}
	if err := os.Link(draft, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// checkNew refuses a SQLite database that exists, or one of the files that belong to it.
func checkNew(db string) error {
	for _, ending := range append([]string{""}, besides...) {
		if err := checkNone(db + ending); err != nil {
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
