package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
)

// printKey issues a key and prints only that key to stdout. It creates no database and no keys
// file: a running server would not accept a key that other secrets protect.
func printKey(ctx context.Context, o options, stdout io.Writer, log *slog.Logger) (err error) {
	if err := exists(o.db); err != nil {
		return err
	}
	keys, err := readSecrets(o.keys, log)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keys file %s does not exist: start the server, which creates it", o.keys)
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
	key, err := h.issue(ctx, keyCommand, o.issueFor, "made with the command key")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, string(key))
	return err
}
