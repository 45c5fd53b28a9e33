package marketplace

import (
	"context"
	"errors"
	"io/fs"
)

var errNotAFile = errors.New("not a regular file")

// readFile reads a file of at most limit bytes. Errors are faults, or ctx's when the caller
// cancelled it.
func readFile(
	ctx context.Context, files fs.FS, name string, limit int,
) (data []byte, err error) {
	defer func() {
		if err != nil {
			err = explain(ctx, "cannot be read", err)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Check the mode before opening the file: to open a named pipe waits for a writer.
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotAFile
	}
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readLimited(file, limit, info.Size())
}
