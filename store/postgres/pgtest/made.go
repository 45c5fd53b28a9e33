//go:build unix

package pgtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// initdb has the arguments of initdb, without the directory.
var initdb = []string{
	"-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync",
}

// making lets one test of a process run initdb, and the others copy what it made.
var making sync.Mutex

// create makes the files of a new cluster. initdb takes a hundred times as long as a copy, so it
// runs once for a machine and a version of the server.
func (c *Cluster) create() {
	c.t.Helper()
	made := c.made()
	making.Lock()
	defer making.Unlock()
	if _, err := os.Stat(made); err == nil {
		if err := c.copied(made); err != nil {
			c.t.Fatal(err)
		}
		return
	}
	c.output(c.program("initdb"), append([]string{"-D", c.data()}, initdb...)...)
	if made == "" {
		return
	}
	if err := keep(c.data(), made); err != nil {
		c.t.Logf("initdb runs once more, because its directory is not kept: %v", err)
	}
}

// made returns the directory in the user's cache of what initdb makes, or "" when the user has no
// cache.
func (c *Cluster) made() string {
	c.t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	version := c.output(c.program("postgres"), "--version")
	sum := sha256.Sum256([]byte(string(version) + strings.Join(initdb, " ")))
	return filepath.Join(cache, "svc-pgtest", fmt.Sprintf("%x", sum[:8]))
}

// copied copies the directory of a cluster for the server's user.
func (c *Cluster) copied(made string) error {
	if err := os.CopyFS(c.data(), os.DirFS(made)); err != nil {
		return err
	}
	if err := os.Chmod(c.data(), 0o700); err != nil { // else the server refuses it
		return err
	}
	if c.as == nil {
		return nil
	}
	return filepath.WalkDir(c.data(), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, int(c.as.Uid), int(c.as.Gid)))
	})
}

// keep puts a copy of data into the cache. Several processes may do so concurrently: the copy
// appears whole, and the first one stays.
func keep(data, made string) (err error) {
	if err := os.MkdirAll(filepath.Dir(made), 0o700); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(made), "part-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	if err := os.CopyFS(part, os.DirFS(data)); err != nil {
		return err
	}
	_ = exec.Command("sync").Run() // a crash of the machine must not leave empty files there
	if err := os.Rename(part, made); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
