package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/extsvc/svc/store/sqlite"
)

// unfinished is the text of a keys file while a restore makes the database. The server does not
// start with it. So a restore that is killed never looks like a new server, nor like one that has
// lost its keys.
const unfinished = "A restore of this file and its database has not finished.\n"

// repeatRestore says what to do about a keys file of a restore that was killed.
const repeatRestore = "repeat the restore"

func isUnfinished(keys string) bool {
	text, err := readFile(keys)
	return err == nil && string(text) == unfinished
}

// checkRestored refuses the keys file of a restore that was killed.
func checkRestored(keys, then string) error {
	if !isUnfinished(keys) {
		return nil // the caller reads it, and meets an error again
	}
	return fmt.Errorf("keys file %s is of a restore that did not finish: %s", keys, then)
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
	keys, remove, err := makeDrafts(c.Keys)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer remove()
	drafts := keys
	if !isPostgres(c.DB) {
		var remove func()
		if drafts, remove, err = makeDrafts(c.DB); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		defer remove()
	}
	file, err := archiveToRead(ctx, c.operand, drafts)
	if err != nil {
		return err
	}
	from, err := openArchive(file)
	if err != nil {
		return err
	}
	defer from.Close()
	return place(c, keys, func() error {
		db := filepath.Join(drafts, databaseName)
		if err := unpackDatabase(ctx, from, db); err != nil {
			return err
		}
		if err := unpackKeys(ctx, from, keys, c.log); err != nil {
			return err
		}
		if isPostgres(c.DB) {
			return copyRows(ctx, db, c.DB, shown)
		}
		return putNew(db, c.DB)
	})
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
	} else if err := checkNew(c.DB); err != nil {
		return cmp.Or(checkRestored(c.Keys, "remove it and the database, and restore again"), err)
	}
	if isUnfinished(c.Keys) {
		return nil
	}
	return checkNone(c.Keys)
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

// unpackKeys writes the keys file of a backup to a folder, and checks it.
func unpackKeys(ctx context.Context, from *archive, folder string, log *slog.Logger) error {
	text, err := from.readKeys(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(folder, secretsName)
	if err := writeText(file, string(text)); err != nil {
		return err
	}
	if _, err := readSecrets(file, log); err != nil {
		return notWhole(from.path, errors.New("its keys file is damaged"))
	}
	return nil
}

// place puts the keys file of a folder into place when makeDatabase has made the database. Until then, another
// file stands there, with which no server starts. Of two restores that make one database, the second one fails,
// and leaves that file to the first.
func place(c *call, keys string, makeDatabase func() error) error {
	mark := filepath.Join(keys, "unfinished")
	made, err := false, writeText(mark, unfinished)
	if err == nil {
		made, err = put(mark, c.Keys)
	}
	if err == nil && !made && !isUnfinished(c.Keys) {
		err = taken(c.Keys)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err = makeDatabase(); err == nil {
		err = os.Rename(filepath.Join(keys, secretsName), c.Keys)
	} else if made && isUnfinished(c.Keys) && checkNone(c.DB) == nil {
		_ = os.Remove(c.Keys) // the error that ended the restore says more
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return syncDir(filepath.Dir(c.Keys))
}
