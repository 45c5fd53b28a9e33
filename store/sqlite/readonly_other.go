//go:build !unix

package sqlite

import (
	"io/fs"
	"os"
)

const toRead, toWrite fs.FileMode = 0o400, 0o200

// may reports whether the mode of a file or a folder gives a right to its owner.
func may(path string, right fs.FileMode) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&right != 0
}

// names returns 1: only Unix tells.
func names(fs.FileInfo) uint64 { return 1 }
