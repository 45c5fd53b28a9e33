package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/extsvc/svc/store/sqlite"
)

// unfinished is the text of a keys file while a restore makes the database. The server does not
// start with it. So a restore that is killed never looks like a new server, nor like one that has
// lost its keys.
const unfinished = "A restore of this file and its database has not finished.\n"

func isUnfinished(keys string) bool {
	text, err := readFile(keys)
	return err == nil && string(text) == unfinished
}

// checkRestored refuses the keys file of a restore that was killed.
func checkRestored(keys string) error {
	if !isUnfinished(keys) {
		return nil // the caller reads it, and meets an error again
	}
	return fmt.Errorf("keys file %s is of a restore that did not finish:"+
		" remove it and the database, and restore again", keys)
}

var restoreCommand = subcommand{
	name:  "restore",
	takes: "FILE",
	about: "make a database and a keys file from a backup; - is the standard input. An existing" +
		" one stays as it is, and then the command fails",
	setup: withProgress("restore", restore),
}

// restore makes a database and a keys file from a backup, both or none. It replaces nothing. It can
// be repeated after it was killed.
func restore(ctx context.Context, c *call, shown *progress) (err error) {
	if err := checkFree(ctx, c); err != nil {
		return err
	}
	of := c.Keys
	if !isPostgres(c.DB) {
		of = c.DB
	}
	err = errors.Join(removeDrafts(draftsOf(c.Keys)), removeDrafts(draftsOf(of)))
	drafts := ""
	if err == nil {
		folder, prefix := draftsOf(of)
		drafts, err = os.MkdirTemp(folder, prefix+"*") // with mode 0700
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(drafts)
	file, err := archiveToRead(ctx, c.operand, drafts)
	if err != nil {
		return err
	}
	from, err := openArchive(file)
	if err != nil {
		return err
	}
	defer from.Close()
	db := filepath.Join(drafts, databaseName)
	if err := unpackDatabase(ctx, from, db); err != nil {
		return err
	}
	keys, err := unpackKeys(ctx, from, c.Keys, c.log)
	if err != nil {
		return err
	}
	defer os.Remove(keys)
	return place(c, keys, func() error {
		if isPostgres(c.DB) {
			return copyRows(ctx, db, c.DB, shown)
		}
		return putNew(db, c.DB)
	})
}

// draftsOf returns the folder of a file that a restore makes, and how the names of its drafts there
// begin. Concurrent restores have different drafts, unless they make the same file.
func draftsOf(file string) (folder, prefix string) {
	return filepath.Dir(file), ".svc-restore-" + filepath.Base(file) + "-"
}

// archiveToRead returns the path of a backup. A backup from the standard input is first written to
// folder, because its table of contents is at its end.
func archiveToRead(ctx context.Context, file, folder string) (string, error) {
	if file != standard {
		return file, nil
	}
	path := filepath.Join(folder, "standard input")
	err := writeWhole(path, func(file *os.File) error {
		_, err := io.Copy(file, standardInput(ctx))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	return path, nil
}

// checkFree refuses a database or a keys file that exists. The marker of a killed
// restore in place of the keys file does not count.
func checkFree(ctx context.Context, c *call) error {
	if err := checkApart("-keys", c.Keys, c.DB); err != nil {
		return err
	}
	if isPostgres(c.DB) {
		if err := checkTarget(ctx, "", c.DB); err != nil {
			return err
		}
	} else if err := checkFreeFiles(c); err != nil {
		return err
	}
	if isUnfinished(c.Keys) {
		return nil
	}
	return checkNone(c.Keys)
}

// checkFreeFiles refuses a SQLite database that exists, or one of the files that belong to it.
func checkFreeFiles(c *call) error {
	for _, ending := range append([]string{""}, besides...) {
		if err := checkNone(c.DB + ending); err != nil {
			return cmp.Or(checkRestored(c.Keys), err)
		}
	}
	return nil
}

func checkNone(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return taken(file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

func taken(file string) error {
	return fmt.Errorf("%s exists: move it away, or restore into another place", file)
}

// unpackDatabase writes the database of a backup to path and checks that this program knows it.
func unpackDatabase(ctx context.Context, from *archive, path string) error {
	err := writeWhole(path, func(file *os.File) error {
		return from.extract(ctx, databaseName, file)
	})
	if err != nil {
		return err
	}
	if _, err := sqlite.Pending(ctx, path); err != nil {
		return fmt.Errorf("the database in %s cannot be used: %w", from.path, err)
	}
	return nil
}

// unpackKeys writes the keys file of a backup to a draft of file, and checks it.
func unpackKeys(
	ctx context.Context, from *archive, file string, log *slog.Logger,
) (draft string, err error) {
	text, err := from.readKeys(ctx)
	if err != nil {
		return "", err
	}
	if draft, err = writeDraft(file, string(text)); err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	if _, err := readSecrets(draft, log); err != nil {
		_ = os.Remove(draft)
		return "", notWhole(from.path, errors.New("its keys file is damaged"))
	}
	return draft, nil
}

func writeDraft(of, text string) (path string, err error) {
	folder, prefix := draftsOf(of)
	draft, err := os.CreateTemp(folder, prefix+"*") // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(draft, text)
	if err == nil {
		err = draft.Sync()
	}
	return draft.Name(), errors.Join(err, draft.Close())
}

// place puts the keys file into place when makeDatabase has made the database. Until then, another
// file stands there, with which no server starts.
func place(c *call, keys string, makeDatabase func() error) error {
	mark, err := writeDraft(c.Keys, unfinished)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.Remove(mark)
	err = os.Link(mark, c.Keys)
	again := errors.Is(err, fs.ErrExist) && isUnfinished(c.Keys)
	switch {
	case again:
	case errors.Is(err, fs.ErrExist):
		return taken(c.Keys)
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	}
	err = syncDir(filepath.Dir(c.Keys))
	if err == nil {
		err = makeDatabase()
	}
	if err == nil {
		err = os.Rename(keys, c.Keys)
	} else if !again && isUnfinished(c.Keys) {
		_ = os.Remove(c.Keys) // the error that ended the restore says more
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return syncDir(filepath.Dir(c.Keys))
}

// putNew gives a file another name. Unlike a rename, it replaces nothing.
func putNew(file, name string) error {
	if err := os.Link(file, name); err != nil {
		return err
	}
	err := syncDir(filepath.Dir(name))
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}
