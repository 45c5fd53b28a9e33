//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// othersMay returns the permissions that a secret file must not have. A group may read a file of root, as a
// Kubernetes secret gives it to a user who is not root.
func othersMay(info os.FileInfo) os.FileMode {
	if info.Sys().(*syscall.Stat_t).Uid == 0 && os.Geteuid() != 0 {
		return 0o037
	}
	return 0o077
}

// lockFolder locks a folder until unlock, or until the process ends. It does not wait for another lock: it fails.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return func() {}, errors.Join(err, folder.Close())
	}
	return func() { _ = folder.Close() }, nil
}

// sameOwner gives a draft the owner of the file at path: root may change the file of a server that
// runs as another user.
func sameOwner(draft *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	of := info.Sys().(*syscall.Stat_t)
	if int(of.Uid) == os.Geteuid() {
		return nil
	}
	if err := draft.Chown(int(of.Uid), int(of.Gid)); err != nil {
		return fmt.Errorf("keys file: run this as its owner: %w", err)
	}
	return nil
}
