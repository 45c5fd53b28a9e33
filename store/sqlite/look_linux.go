package sqlite

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"
)

// indexHeader is the first copy of the header of the index of a write-ahead log. Every commit
// changes it (https://sqlite.org/walformat.html#the_wal_index_header).
type indexHeader [6]uint64

// read returns the header as it is now. A commit may be changing it: then the result is neither the
// header before nor that after. Zero: the file was cut short, so its memory cannot be read.
func (h *indexHeader) read() (now indexHeader) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // else that ends the process
	defer func() {
		if recover() != nil {
			now = indexHeader{}
		}
	}()
	for i := range h {
		now[i] = atomic.LoadUint64(&h[i])
	}
	return now
}

// The format of the index that all versions of SQLite write, and the words that say so.
const (
	indexFormat = 3007000
	indexReady  = 1 << 32 // the byte after the count of commits
)

// findIndex returns the header in the memory that SQLite shares with other processes, which it maps
// while a connection is open. nil: there is no such memory, or it has another format.
//
// It finds the memory in the list of mapped files. It must not open the file: closing it would drop
// SQLite's locks.
func findIndex(path string) *indexHeader {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// address permissions offset device inode path
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || strings.TrimLeft(fields[5], " ") != path+"-shm" ||
			strings.Trim(fields[2], "0") != "" {
			continue
		}
		from, _, _ := strings.Cut(fields[0], "-")
		address, err := strconv.ParseUint(from, 16, strconv.IntSize)
		if err != nil {
			return nil
		}
		at := uintptr(address)
		// The memory is not Go's, and stays mapped while the looker's connection is open.
		index := *(**indexHeader)(unsafe.Pointer(&at))
		if now := index.read(); uint32(now[0]) != indexFormat || now[1]&indexReady == 0 {
			return nil
		}
		return index
	}
	return nil
}
