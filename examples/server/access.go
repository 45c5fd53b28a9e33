package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/extsvc/svc"
)

// runAccess exports, applies or compares all rows of access, by the host itself. It creates no SQLite
// file. It makes and checks no key, so it needs no keys file. Without a Logger, the Service logs
// errors only, and does not warn about the missing pepper.
func runAccess(ctx context.Context, o options, stdout io.Writer) (err error) {
	if err := exists(o.db); err != nil {
		return err
	}
	h, err := openStore(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	config := svc.Config{Store: h.store, Events: svc.EventConfig{Keep: true}}
	if h.service, err = svc.New(config); err != nil {
		return err
	}
	by := svc.Host.As("server " + o.access)
	if o.access == "export" {
		return export(ctx, h.service, by, stdout)
	}
	bundle, err := readBundle(o.file)
	if err != nil {
		return err
	}
	how := svc.BundleWrite{Prune: o.prune}
	if o.access == "apply" {
		return inFile(o.file, h.service.Access.Write(ctx, by, bundle, how))
	}
	diff, err := h.service.Access.Preview(ctx, by, bundle, how)
	if err != nil {
		return inFile(o.file, err)
	}
	return printDiff(stdout, differences(diff), o.json)
}

func export(
	ctx context.Context, service *svc.Service, by svc.Principal, stdout io.Writer,
) error {
	bundle, err := service.Access.Export(ctx, by)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(stdout)
	if err := bundle.WriteJSON(out); err != nil {
		return err
	}
	_ = out.WriteByte('\n') // Flush reports the error
	return out.Flush()
}

// readBundle reads the bundle in a file; "-" is the standard input.
func readBundle(file string) (svc.Bundle, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(os.Stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return svc.Bundle{}, fmt.Errorf("bundle: %w", err)
	}
	bundle, err := svc.ParseBundle(data)
	return bundle, inFile(file, err)
}

func inFile(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bundle %s: %w", file, err)
}
