package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"

	"github.com/extsvc/svc"
)

var keyCommand = subcommand{
	name:  "key",
	about: "print a new API key, also while the server runs",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.keysFlag(flags)
		user := flags.String("user", "",
			"the `ID` of the user that the key is for, who must have a row in the database")
		account := flags.String("service-account", "",
			"the `ID` of the service account that the key is for")
		return func(ctx context.Context) error {
			holder := svc.Identity{Kind: svc.KindUser, ID: *user}
			if (*user == "") == (*account == "") {
				return usageError("key needs exactly one of -user ID and -service-account ID")
			} else if *user == "" {
				holder = svc.Identity{Kind: svc.KindServiceAccount, ID: *account}
			}
			return printKey(ctx, c, holder)
		}
	},
}

// printKey issues a key and prints only that key to stdout. It creates no database and no keys
// file: a running server would not accept a key that other secrets protect.
func printKey(ctx context.Context, c *call, holder svc.Identity) (err error) {
	if err := exists(c.DB); err != nil {
		return err
	}
	keys, err := readSecrets(c.Keys, c.log)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keys file %s does not exist: start the server, which creates it", c.Keys)
	} else if err != nil {
		return err
	}
	h, err := openStore(ctx, c.openDatabase)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.build(c.config, keys, nil, c.log); err != nil {
		return err
	}
	issued, err := h.issue(ctx, byKey, holder, "made with the command key")
	if err != nil {
		return err
	}
	return c.printNew(issued)
}
