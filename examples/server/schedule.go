package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scheduled backups have the time in their names, so that the names sort by age.
const backupTime = "20060102T150405.000Z"

var backupName = regexp.MustCompile(`^svc-(\d{8}T\d{6}\.\d{3}Z)\.backup$`)

// scheduledDraft begins the name of the folder for the drafts of a scheduled backup.
const scheduledDraft = ".svc-scheduled-"

// retryBackup is the longest time from a backup that failed to the next try.
const retryBackup = time.Minute

// backUp makes a backup at intervals until ctx ends: the first when the newest in the folder is old
// enough. A failure is logged, and the earlier backups stay.
func (c *call) backUp(ctx context.Context) {
	for c.Backup.Dir != "" {
		wait, err := c.untilBackup(time.Now())
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
	if err := removeDrafts(c.Backup.Dir, scheduledDraft); err != nil {
		return err
	}
	file := filepath.Join(c.Backup.Dir, "svc-"+time.Now().UTC().Format(backupTime)+".backup")
	one := &call{config: c.config, operand: file, stdout: io.Discard, log: c.log}
	err := backupBy(ctx, one, scheduledDraft, newProgress(io.Discard, "backup"))
	if err != nil {
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

// removeDrafts removes the drafts in a folder whose names begin so, of commands that were killed: each
// may have a copy of the database or its secrets, and would fill the disk in time.
func removeDrafts(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		end, ours := strings.CutPrefix(entry.Name(), prefix)
		if ours && strings.Trim(end, "0123456789") == "" { // as os.MkdirTemp ends it
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, entry.Name())))
		}
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
