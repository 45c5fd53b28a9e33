//go:build !unix

package main

import (
	"errors"
	"os"
)

// othersMay is for permissions of Unix.
func othersMay(os.FileInfo) os.FileMode { return 0 }

// lockFolder locks nothing.
func lockFolder(string) (unlock func(), err error) { return func() {}, errors.ErrUnsupported }

// sameOwner does nothing: the directory says who may read a new file.
func sameOwner(*os.File, string) error { return nil }
