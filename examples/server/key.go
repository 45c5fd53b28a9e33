package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
)

// printKey issues a key and prints it, and nothing else, to stdout. It makes neither database nor keys file: with keys
// of its own, a server that runs would not accept what it prints.
func printKey(ctx context.Context, o options, stdout io.Writer, log *slog.Logger) (err error) {
	if !isPostgres(o.db) {
		if _, err := os.Stat(o.db); err != nil {
			return fmt.Errorf("database: %w", err)
		}
	}
	keys, err := readSecrets(o.keys, log)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no keys file %s: the server makes one when it starts", o.keys)
	} else if err != nil {
		return err
	}
	h, err := openStore(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.build(keys, nil, log); err != nil {
		return err
	}
	key, err := h.issue(ctx, o.issueFor, "made with the command key")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, string(key))
	return err
}
