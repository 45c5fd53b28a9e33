package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/extsvc/svc"
)

// Scheduled backups have the time in their names, so that the names sort by age.
const backupTime = "20060102T150405.000Z"

var backupName = regexp.MustCompile(`^svc-(\d{8}T\d{6}\.\d{3}Z)\.backup$`)

// retryBackup is the longest time from a backup that failed to the next try.
const retryBackup = time.Minute

// backUp makes a backup at intervals until ctx ends: the first when the newest in the folder is old
// enough. A failure is logged, and the earlier backups stay.
func (c *call) backUp(ctx context.Context, of svc.APIKeyStore) {
	for c.Backup.Dir != "" {
		wait, err := c.untilBackup(time.Now())
		if err == nil {
			err = c.claimBackups(ctx, of)
		}
		if err == nil && wait <= 0 {
			if err = c.backupNow(ctx); err == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.log.Error("cannot make the scheduled backup, will retry", "error", err)
			wait = min(retryBackup, c.Backup.Every.value())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// claimBackups notes in the folder of backups whose they are, and refuses those of another database: they would
// count, and be removed, as if they were of this one.
func (c *call) claimBackups(ctx context.Context, of svc.APIKeyStore) error {
	mine, err := identity(ctx, of, rand.Text())
	if err != nil {
		return err
	}
	file := filepath.Join(c.Backup.Dir, ".svc-database")
	if _, err := makeText(file, mine); err != nil {
		return fmt.Errorf("backup.dir: %w", err)
	}
	owner, err := readFile(file)
	if err == nil && string(owner) != mine {
		err = fmt.Errorf("%s has the backups of another database: name another folder, or remove %s", c.Backup.Dir, file)
	}
	return err
}

// untilBackup returns how long the newest backup suffices. Those of a clock that was fast do not
// count.
func (c *call) untilBackup(now time.Time) (time.Duration, error) {
	made, err := scheduled(c.Backup.Dir)
	for _, name := range slices.Backward(made) {
		at, wrong := time.Parse(backupTime, backupName.FindStringSubmatch(name)[1])
		if wrong == nil && !at.After(now) {
			return at.Add(c.Backup.Every.value()).Sub(now), nil
		}
	}
	return 0, err
}

// backupNow makes a backup as the command does, and then removes the oldest beyond backup.keep.
// Those of a clock that was fast do not count and stay: the clock may be slow now.
func (c *call) backupNow(ctx context.Context) error {
	file := filepath.Join(c.Backup.Dir, "svc-"+time.Now().UTC().Format(backupTime)+".backup")
	one := &call{config: c.config, operand: file, stdout: io.Discard, log: c.log}
	if err := backup(ctx, one, newProgress(io.Discard, "backup")); err != nil {
		return err
	}
	c.log.Info("made the scheduled backup", "file", file)
	made, err := scheduled(c.Backup.Dir)
	made = made[:slices.Index(made, filepath.Base(file))+1]
	for _, name := range made[:max(0, len(made)-c.Backup.Keep)] {
		err = errors.Join(err, os.Remove(filepath.Join(c.Backup.Dir, name)))
	}
	return err
}

// scheduled returns the names of the scheduled backups in a folder, the oldest first. It makes the
// folder.
func scheduled(folder string) (names []string, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("backup.dir: %w", err)
	}
	entries, err := os.ReadDir(folder) // sorted
	if err != nil {
		return nil, fmt.Errorf("backup.dir: %w", err)
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() && backupName.MatchString(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
