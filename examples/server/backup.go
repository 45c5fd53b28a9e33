package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

var backupCommand = subcommand{
	name:  "backup",
	takes: "FILE",
	about: "write the database and the keys file into one FILE, also while the server runs. An" +
		" earlier backup in FILE is replaced, and no other file; - is the standard output",
	setup: withProgress("backup", backup),
}

// withProgress returns the setup of a command that shows its progress on a terminal.
func withProgress(
	name string, do func(context.Context, *call, *progress) error,
) func(*flag.FlagSet, *call) job {
	return func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		return func(ctx context.Context) error {
			shown := newProgress(c.stdout, name)
			defer shown.end()
			return do(ctx, c, shown)
		}
	}
}

// backup writes the database and the keys file into one file, which appears whole or not at all. An
// earlier backup under that name stays until then.
func backup(ctx context.Context, c *call, shown *progress) error {
	if err := c.checkSource(ctx); err != nil {
		return err
	}
	keys, err := keysToKeep(c.Keys, c.log)
	if err != nil {
		return err
	}
	if err := checkBackupFile(c); err != nil {
		return err
	}
	made := c.operand
	if made == standard {
		made = filepath.Join(os.TempDir(), "backup")
	}
	drafts, remove, err := makeDrafts(made)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer remove()
	db := filepath.Join(drafts, databaseName)
	if err := snapshot(ctx, c.DB, db, shown); err != nil {
		return err
	}
	if now, err := readFile(c.Keys); err != nil {
		return fmt.Errorf("keys file: %w", err)
	} else if !bytes.Equal(now, keys) {
		return fmt.Errorf("keys file %s has changed during the backup: run it again", c.Keys)
	}
	whole := filepath.Join(drafts, "backup")
	if err := archiveFiles(ctx, whole, db, keys); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := verifyArchive(ctx, whole); err != nil {
		return err
	}
	if c.operand == standard {
		return copyFile(ctx, c.stdout, whole)
	}
	if err := os.Rename(whole, c.operand); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return syncDir(filepath.Dir(c.operand))
}

// copyFile writes a file to out.
func copyFile(ctx context.Context, out io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(out, inTime{ctx, file})
	return err
}

// keysToKeep returns the text of the keys file, unless it is damaged.
func keysToKeep(path string, log *slog.Logger) ([]byte, error) {
	if _, err := readSecrets(path, log); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keys file %s does not exist: name the right one with -keys", path)
	} else if err != nil {
		return nil, err
	}
	return readFile(path)
}

// checkApart refuses the name of a file that SQLite uses for a database.
func checkApart(what, file, db string) error {
	for _, own := range filesOf(db) {
		if filepath.Clean(file) == filepath.Clean(own) {
			return fmt.Errorf("%s must not be %s, which belongs to the database: name another one",
				what, file)
		}
	}
	return nil
}

// checkBackupFile refuses a FILE that the backup must not replace.
func checkBackupFile(c *call) error {
	if c.operand == standard {
		if out, is := c.stdout.(*os.File); is && isTerminal(out) {
			return usageError("FILE - is the standard output, which is a terminal:" +
				" send it to a file or a pipe")
		}
		return nil
	}
	if err := checkApart("FILE", c.operand, c.DB); err != nil {
		return err
	}
	info, err := os.Stat(c.operand)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name another FILE", c.operand)
	}
	for _, file := range append(filesOf(c.DB), c.Keys) {
		if sameFile(c.operand, file) {
			return fmt.Errorf("%s is what to back up: name another FILE", c.operand)
		}
	}
	if c.operand, err = filepath.EvalSymlinks(c.operand); err != nil { // the file is replaced, and not a link to it
		return fmt.Errorf("backup: %w", err)
	}
	if info.Size() == 0 {
		return nil
	}
	earlier, err := openArchive(c.operand)
	if err != nil {
		return fmt.Errorf("%s is no backup, which this one may replace: name another FILE, or remove it", c.operand)
	}
	return earlier.Close()
}

// snapshot copies a database into a new SQLite file.
func snapshot(ctx context.Context, from, path string, shown *progress) error {
	if err := copyRows(ctx, from, path, shown); err != nil {
		return err
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		return errors.New("the copy of the database could not be finished: run it again")
	}
	return nil
}

// verifyArchive reads a backup to its end, and compares it with its manifest.
func verifyArchive(ctx context.Context, path string) error {
	made, err := openArchive(path)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := made.extract(ctx, databaseName, io.Discard); err != nil {
		return err
	}
	_, err = made.readKeys(ctx)
	return err
}

func archiveFiles(ctx context.Context, path, db string, keys []byte) error {
	database, err := os.Open(db)
	if err != nil {
		return err
	}
	defer database.Close()
	return writeWhole(path, func(file *os.File) error {
		return writeArchive(ctx, file, map[string]io.ReadSeeker{
			databaseName: database, secretsName: bytes.NewReader(keys),
		})
	})
}
