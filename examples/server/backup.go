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

func parseBackup(command string, args []string) (options, error) {
	o := options{move: command}
	err := o.complete(backupFlags(&o), args, &o.file)
	return o, err
}

func backupFlags(o *options) *flag.FlagSet {
	flags := newFlags(o)
	flags.StringVar(&o.keys, "keys", "", "")
	return flags
}

// backup writes the database and the keys file into one file, which appears whole or not at all. An
// earlier backup under that name stays until then.
func backup(ctx context.Context, o options, shown *progress, log *slog.Logger) error {
	if err := checkSource(ctx, o.db); err != nil {
		return err
	}
	keys, err := keysToKeep(o.keys, log)
	if err != nil {
		return err
	}
	if err := checkBackupFile(o); err != nil {
		return err
	}
	folder := filepath.Dir(o.file)
	drafts, err := os.MkdirTemp(folder, ".svc-backup-") // with mode 0700
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer os.RemoveAll(drafts)
	db := filepath.Join(drafts, databaseName)
	if err := snapshot(ctx, o.db, db, shown); err != nil {
		return err
	}
	if now, err := os.ReadFile(o.keys); err != nil {
		return fmt.Errorf("keys file: %w", err)
	} else if !bytes.Equal(now, keys) {
		return fmt.Errorf("keys file %s has changed during the backup: run it again", o.keys)
	}
	whole := filepath.Join(drafts, "backup")
	if err := archiveFiles(ctx, whole, db, keys); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Rename(whole, o.file); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return syncDir(folder)
}

// keysToKeep returns the text of the keys file, unless it is damaged.
func keysToKeep(path string, log *slog.Logger) ([]byte, error) {
	if _, err := readSecrets(path, log); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keys file %s does not exist: name the right one with -keys", path)
	} else if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// checkBackupFile refuses a FILE that the backup must not replace.
func checkBackupFile(o options) error {
	info, err := os.Stat(o.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name another FILE", o.file)
	}
	own := []string{o.keys, o.db}
	for _, ending := range besides {
		own = append(own, o.db+ending)
	}
	for _, file := range own {
		if sameFile(o.file, file) {
			return fmt.Errorf("%s is what to back up: name another FILE", o.file)
		}
	}
	return nil
}

// snapshot copies a database into a new SQLite file.
func snapshot(ctx context.Context, from, path string, shown *progress) error {
	if err := copyRows(ctx, from, path, shown); err != nil {
		return err
	}
	if _, err := os.Stat(path + besides[0]); err == nil {
		return errors.New("backup: the copy of the database could not be finished: run it again")
	}
	return nil
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
