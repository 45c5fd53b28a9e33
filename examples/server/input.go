package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/extsvc/svc"
)

// standard is the FILE of a command that stands for its standard input or output.
const standard = "-"

// standardInput returns the standard input. Its reads fail when ctx ends: otherwise a command that
// waits for a terminal or a pipe would not end with the first signal.
func standardInput(ctx context.Context) io.Reader {
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, os.Stdin)
		_ = writer.CloseWithError(err) // nil: the end
	}()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })
	return reader
}

// textOf reads a file, or the standard input.
func textOf(ctx context.Context, file string) ([]byte, error) {
	if file == standard {
		return readAll(standardInput(ctx), "the standard input")
	}
	return readFile(file)
}

// inDocument says which file has the document that an error is about, and where in the file.
func (c *call) inDocument(err error) error {
	return svc.MapFields(err, func(e *svc.Error) string {
		at, is := strings.CutPrefix(e.Field, "/document")
		if !is {
			return e.Field
		}
		return strings.TrimSuffix(c.second+": "+at, ": ")
	})
}

// mostText is the most bytes of a text that a command reads: a bundle of some million users.
const mostText = 256 << 20

// readFile is os.ReadFile, which has no end for a device.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readAll(file, path)
}

func readAll(from io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, mostText+1))
	if err == nil && len(text) > mostText {
		err = fmt.Errorf("%s has more than %d MiB", name, mostText>>20)
	}
	return text, err
}
