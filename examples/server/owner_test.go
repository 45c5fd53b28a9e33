//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/matryer/is"
)

// Root rotates the secrets of a server that runs as another user, who must still be able to read them.
func TestKeysFileKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED, because only root gives files to others")
	}
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "svc.keys")
	_, err := makeSecrets(path)
	is.NoErr(err)
	is.NoErr(os.Chown(path, 12345, 12346))
	link := filepath.Join(t.TempDir(), "link.keys")
	is.NoErr(os.Symlink(path, link))
	does(t, "keys", "rotate", "-keys", link)
	info, err := os.Stat(path)
	is.NoErr(err)
	of := info.Sys().(*syscall.Stat_t)
	is.Equal([]uint32{of.Uid, of.Gid}, []uint32{12345, 12346})
	is.Equal(info.Mode(), os.FileMode(0o600))
	is.Equal(len(versions(t, path)), 2)
	info, err = os.Lstat(link)
	is.NoErr(err)
	is.True(info.Mode()&os.ModeSymlink != 0) // the file is replaced, and not the link
}
