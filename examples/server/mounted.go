package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// warnOfMount warns of a SQLite file that is mounted without its folder, as containers do with a
// file in place of a folder: the newest commits are in the -wal file next to it,
// which is not mounted.
func warnOfMount(db string, log *slog.Logger) {
	if isPostgres(db) {
		return
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo") // of Linux
	if err == nil && isMounted(string(mounts), db) {
		log.Warn("the database is a file that is mounted alone, and its -wal file is not in the"+
			" mount: the newest commits are lost with the container or the machine. Mount its"+
			" folder",
			"db", db)
	}
}

// escaped are the characters that the list of mounts escapes.
var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// isMounted reports whether a file is the root of a mount. A path of a mount is the fifth field.
func isMounted(mounts, file string) bool {
	path, err := filepath.EvalSymlinks(file)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 4 && escaped.Replace(fields[4]) == path {
			return err == nil
		}
	}
	return false
}
