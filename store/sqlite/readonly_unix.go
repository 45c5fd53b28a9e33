//go:build unix

package sqlite

import (
	"io/fs"
	"syscall"
)

const toRead, toWrite = 4, 2 // R_OK, W_OK

// may reports whether this process has a right to a file or a folder. It must not open the file:
// closing it would drop SQLite's locks.
func may(path string, right uint32) bool { return syscall.Access(path, right) == nil }

// names returns how many names a file has.
func names(info fs.FileInfo) uint64 {
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 1
	}
	return uint64(stat.Nlink)
}
