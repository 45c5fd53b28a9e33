package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"
)

// openToRead opens a file for Options.ReadOnly.
func openToRead(ctx context.Context, path string) (*Store, error) {
	if err := checkKind(path); err != nil {
		return nil, err
	} else if !may(path, toRead) {
		return nil, fmt.Errorf("%w: this process needs the right to read the file",
			fs.ErrPermission)
	}
	s := prepare(path, Options{ReadOnly: true}, access(path))
	if err := s.CheckVersion(ctx); err != nil {
		return nil, errors.Join(lackingRight(path, err), s.Close())
	}
	return s, nil
}

// access returns the parameter of connections that only read a file. SQLite needs the right to
// write to the folder, for the files next to a database, unless the file is whole and nobody
// changes it: that is so without a write-ahead log, which a process has while it uses the file. The
// empty log of a copy has no -shm file: it holds nothing.
func access(path string) string {
	if mayWrite(path) {
		return "mode=rw"
	}
	log, err := os.Stat(path + "-wal")
	_, shared := os.Lstat(path + "-shm")
	copied := err == nil && log.Size() == 0 && errors.Is(shared, fs.ErrNotExist)
	if copied || errors.Is(err, fs.ErrNotExist) {
		return "mode=ro&immutable=1"
	}
	return "mode=ro"
}

// mayWrite reports whether this process may write to a file and to its folder, as SQLite does.
func mayWrite(path string) bool { return may(path, toWrite) && may(filepath.Dir(path), toWrite) }

// checkUse refuses a file that this process may only read, when it writes: SQLite would fail each
// later write. It refuses one with a second name: processes that use both keep two logs, and lose
// commits or read without them. Of a missing file SQLite says so.
func checkUse(path string, writes bool) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil
	case writes && !may(path, toWrite):
		return fmt.Errorf("%w: this process needs the right to write to the file",
			fs.ErrPermission)
	case names(info) > 1:
		return errors.New("the file has a second name, a hard link: remove that, or copy the file")
	}
	return nil
}

// lackingRight adds to an error of a connection which right is missing.
func lackingRight(path string, err error) error {
	_, log := os.Lstat(path + "-wal")
	switch code(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		if mayWrite(path) {
			return err
		}
		right := "to write to the file and to its folder"
		if log == nil {
			right += ", or, to read alone, to read its -wal and -shm files as well"
		}
		return fmt.Errorf("%w: this process needs the right %s", err, right)
	}
	return err
}
