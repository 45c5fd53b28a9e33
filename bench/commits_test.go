package bench_test

import (
	"encoding/binary"
	"os"
	"testing"
)

// TestOneCommit checks that a mutation on SQLite is one commit, and so one sync of the disk. It
// reads the write-ahead log.
func TestOneCommit(t *testing.T) {
	s := siteOf(t, sqliteEngine, small)
	for _, f := range figures {
		switch f.name {
		case "issue", "revoke", "install":
		default:
			continue
		}
		c := f.on(t.Context(), s)
		service := c.sides[len(c.sides)-1]
		if service.before != nil {
			if err := service.before(1); err != nil {
				t.Fatal(err)
			}
		}
		before := commits(t, s.place)
		if err := service.call(); err != nil {
			t.Fatal(err)
		}
		if n := commits(t, s.place) - before; n != 1 {
			t.Errorf("%s: %d commits", f.name, n)
		}
		if c.done != nil {
			if err := c.done(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// commits returns the number of commits in the write-ahead log of a file
// (https://www.sqlite.org/fileformat.html, section 4).
func commits(t *testing.T, path string) int {
	t.Helper()
	const header, frameHeader = 32, 24
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if len(log) < header {
		return 0
	}
	frame := frameHeader + int(binary.BigEndian.Uint32(log[8:]))
	salts := string(log[16:24])
	n := 0
	for at := header; at+frame <= len(log) && string(log[at+8:at+16]) == salts; at += frame {
		if binary.BigEndian.Uint32(log[at+4:]) > 0 { // the size of the database after a commit
			n++
		}
	}
	return n
}
